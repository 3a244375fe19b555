#pragma once

#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

namespace norma::test {

/// y, mean and variance by the definition, in float64 and row-major order.
struct ReferenceNorm {
  std::vector<double> y;
  std::vector<double> mean;  ///< of the set of each element
  std::vector<double> var;
};

/// Plain loops over all elements: each finds its set and its weight by its indices.
inline ReferenceNorm reference_norm(const Tensor& x, const NormSpec& spec, const Tensor& weight = {},
                                    const Tensor& bias = {}) {
  const std::vector<double> values = x.to_vector<double>();
  const std::vector<double> w = weight.defined() ? weight.to_vector<double>() : std::vector<double>{};
  const std::vector<double> b = bias.defined() ? bias.to_vector<double>() : std::vector<double>{};
  const size_t count = values.size();
  std::vector<size_t> set_of(count);
  std::vector<size_t> weight_of(count);
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i;
    std::vector<int64_t> index(static_cast<size_t>(x.rank()));
    for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
      index[static_cast<size_t>(axis)] = static_cast<int64_t>(rest % static_cast<size_t>(x.size(axis)));
      rest /= static_cast<size_t>(x.size(axis));
    }
    for (int64_t axis = 0; axis < x.rank(); ++axis) {
      const int64_t at = index[static_cast<size_t>(axis)];
      const int64_t size = x.size(axis);
      if (!spec.reduce.contains(axis)) {
        set_of[i] = set_of[i] * static_cast<size_t>(size) + static_cast<size_t>(at);
      } else if (spec.groups > 1 && axis == 1) {
        set_of[i] = set_of[i] * static_cast<size_t>(spec.groups) + static_cast<size_t>(at / (size / spec.groups));
      }
      if (spec.affine.contains(axis)) {
        weight_of[i] = weight_of[i] * static_cast<size_t>(size) + static_cast<size_t>(at);
      }
    }
  }
  std::vector<double> sums(count), squares(count), counts(count);
  for (size_t i = 0; i < count; ++i) {
    sums[set_of[i]] += values[i];
    counts[set_of[i]] += 1;
  }
  for (size_t i = 0; i < count; ++i) {
    const double d = values[i] - sums[set_of[i]] / counts[set_of[i]];
    squares[set_of[i]] += d * d;
  }
  ReferenceNorm result;
  for (size_t i = 0; i < count; ++i) {
    const double mean = sums[set_of[i]] / counts[set_of[i]];
    const double var = squares[set_of[i]] / counts[set_of[i]];
    result.mean.push_back(mean);
    result.var.push_back(var);
    result.y.push_back((values[i] - mean) / std::sqrt(var + spec.eps) * (w.empty() ? 1 : w[weight_of[i]]) +
                       (b.empty() ? 0 : b[weight_of[i]]));
  }
  return result;
}

/// Largest |y - reference|; infinite on NaN.
inline double distance(const Tensor& y, const std::vector<double>& reference) {
  const std::vector<double> values = y.to_vector<double>();
  if (values.size() != reference.size()) {
    return INFINITY;
  }
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - reference[i]);
    worst = difference <= worst ? worst : std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

}  // namespace norma::test
