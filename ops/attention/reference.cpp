#include "ops/attention/reference.h"

#include "core/factory.h"
#include "ops/attention/attention.h"
#include "ops/implementations.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

namespace norma {

namespace {

using Doubles = std::vector<double>;

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// to += factor · x
void add_times(double* to, double factor, const double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] += factor * x[i];
  }
}

/// What is added to each score: 0 or -infinity for a bool mask.
Doubles added(const AttentionReferenceInputs& in, const Sizes& scores) {
  if (!in.mask.defined()) {
    return Doubles(static_cast<size_t>(scores.numel()), 0.0);
  }
  Doubles mask = expand(in.mask.detach(), scores).to_vector<double>();
  if (in.mask.dtype() == DType::boolean) {
    std::ranges::transform(mask, mask.begin(),
                           [](double sees) { return sees != 0 ? 0 : -std::numeric_limits<double>::infinity(); });
  }
  return mask;
}

/// The probabilities of one query. A query that sees no key has none.
void probabilities(const AttentionReferenceInputs& in, const double* q, const double* k, const double* mask,
                   int64_t seen, Doubles& p) {
  const int64_t features = in.q.size(3);
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < seen; ++j) {
    p[static_cast<size_t>(j)] = in.scale * dot(q, k + j * features, features) + mask[j];
    largest = std::max(largest, p[static_cast<size_t>(j)]);
  }
  double sum = 0;
  for (int64_t j = 0; j < seen; ++j) {
    double& value = p[static_cast<size_t>(j)];
    value = std::isinf(largest) && largest < 0 && !std::isnan(value) ? 0 : std::exp(value - largest);
    sum += value;
  }
  for (int64_t j = 0; j < seen && sum != 0; ++j) {
    p[static_cast<size_t>(j)] /= sum;
  }
}

}  // namespace

AttentionReferenceResults attention_by_definition(const AttentionReferenceInputs& in) {
  const int64_t heads = in.q.size(0) * in.q.size(1);
  const int64_t queries = in.q.size(2);
  const int64_t keys = in.k.size(2);
  const int64_t features = in.q.size(3);
  const int64_t values = in.v.size(3);
  const Sizes y_sizes = {in.q.size(0), in.q.size(1), queries, values};
  const Sizes score_sizes = {in.q.size(0), in.q.size(1), queries, keys};
  const Doubles q = in.q.to_vector<double>();
  const Doubles k = in.k.to_vector<double>();
  const Doubles v = in.v.to_vector<double>();
  const Doubles dy = in.dy.defined() ? in.dy.to_vector<double>() : Doubles();
  const Doubles mask = added(in, score_sizes);
  Doubles y(static_cast<size_t>(y_sizes.numel()), 0);
  Doubles dq(q.size(), 0);
  Doubles dk(k.size(), 0);
  Doubles dv(v.size(), 0);
  Doubles dmask(mask.size(), 0);
  Doubles p(static_cast<size_t>(keys));
  for (int64_t row = 0; row < heads * queries; ++row) {
    const int64_t first_key = row / queries * keys;
    const int64_t seen = in.causal ? std::min(row % queries + 1, keys) : keys;
    const double* const q_i = q.data() + row * features;
    const double* const k_0 = k.data() + first_key * features;
    const double* const v_0 = v.data() + first_key * values;
    probabilities(in, q_i, k_0, mask.data() + row * keys, seen, p);
    for (int64_t j = 0; j < seen; ++j) {
      add_times(y.data() + row * values, p[static_cast<size_t>(j)], v_0 + j * values, values);
    }
    if (dy.empty()) {
      continue;
    }
    const double* const dy_i = dy.data() + row * values;
    double sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      sum += p[static_cast<size_t>(j)] * dot(dy_i, v_0 + j * values, values);
    }
    for (int64_t j = 0; j < seen; ++j) {
      const double p_j = p[static_cast<size_t>(j)];
      const double dz = p_j * (dot(dy_i, v_0 + j * values, values) - sum);
      add_times(dq.data() + row * features, in.scale * dz, k_0 + j * features, features);
      add_times(dk.data() + (first_key + j) * features, in.scale * dz, q_i, features);
      add_times(dv.data() + (first_key + j) * values, p_j, dy_i, values);
      dmask[static_cast<size_t>(row * keys + j)] = dz;
    }
  }
  const auto tensor = [](const Doubles& numbers, const Sizes& sizes) {
    return from_vector<double>(numbers, sizes, {.dtype = DType::float64, .device = kCpu});
  };
  AttentionReferenceResults results{.y = tensor(y, y_sizes)};
  if (in.dy.defined()) {
    results.dq = tensor(dq, in.q.sizes());
    results.dk = tensor(dk, in.k.sizes());
    results.dv = tensor(dv, in.v.sizes());
    if (in.mask.defined() && in.mask.dtype() != DType::boolean) {
      results.dmask = tensor(dmask, score_sizes);
    }
  }
  return results;
}

namespace {

std::atomic<bool>& attention_reference_is_on() {
  static std::atomic<bool> instance =
      kernels::reference_in_environment("scaled_dot_product_attention", "NORMA_ATTENTION");
  return instance;
}

}  // namespace

bool attention_reference() {
  return attention_reference_is_on();
}

void set_attention_reference(bool on) {
  attention_reference_is_on() = on;
}

}  // namespace norma
