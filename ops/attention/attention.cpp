#include "ops/attention/attention.h"

#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cmath>
#include <limits>
#include <string_view>

namespace norma {

namespace {

constexpr std::string_view kOp = "scaled_dot_product_attention";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Sizes of the products q kᵀ.
Sizes score_sizes(const Tensor& q, const Tensor& k) {
  return {q.size(0), q.size(1), q.size(2), k.size(2)};
}

/// True where a query sees a key: keys 0 … i for query i. bool (L, S).
Tensor causal_mask(int64_t queries, int64_t keys, Device device) {
  return less_equal(unsqueeze(arange(keys, DType::int64, device), 0),
                    unsqueeze(arange(queries, DType::int64, device), 1));
}

void check_mask(const Tensor& mask, const Tensor& q, const Tensor& k) {
  check_device(kOp, "mask", mask, q.device());
  check(mask.dtype() == DType::boolean || mask.dtype() == q.dtype(), kOp, "mask: expected dtype bool or {}, got {}",
        to_string(q.dtype()), to_string(mask.dtype()));
  const Sizes target = score_sizes(q, k);
  bool fits = mask.rank() <= target.size();
  for (int64_t axis = 1; fits && axis <= mask.rank(); ++axis) {
    fits = mask.size(-axis) == 1 || mask.size(-axis) == target[target.size() - axis];
  }
  check(fits, kOp, "mask: expected sizes that broadcast to {}, got {}", to_string(target), to_string(mask.sizes()));
}

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check_rank(kOp, "q", q, 4);
  check_rank(kOp, "k", k, 4);
  check_rank(kOp, "v", v, 4);
  check_floating(kOp, "q", q);
  check_dtype(kOp, "k", k, q.dtype());
  check_dtype(kOp, "v", v, q.dtype());
  check_device(kOp, "k", k, q.device());
  check_device(kOp, "v", v, q.device());
  check(q.size(3) > 0, kOp, "q: expected at least one feature, got sizes {}", to_string(q.sizes()));
  check_sizes(kOp, "k", k, {q.size(0), q.size(1), k.size(2), q.size(3)});
  check_sizes(kOp, "v", v, {q.size(0), q.size(1), k.size(2), v.size(3)});
  check(!options.scale || std::isfinite(*options.scale), kOp, "scale: expected a finite number, got {}",
        options.scale.value_or(0));
  if (options.mask.defined()) {
    check(!options.causal, kOp, "mask: expected none with causal, got sizes {}", to_string(options.mask.sizes()));
    check_mask(options.mask, q, k);
  }
}

/// Attention in differentiable ops, in the dtype of q: the formula, and the second derivatives.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal, double scale) {
  Tensor scores = matmul(mul(q, scale), transpose(k, -2, -1));
  Tensor seen;
  if (causal || (mask.defined() && mask.dtype() == DType::boolean)) {
    seen = causal ? causal_mask(q.size(2), k.size(2), q.device()) : mask;
  } else if (mask.defined()) {
    scores = add(scores, mask);
    seen = not_equal(scores.detach(), -kInfinity);
  }
  if (!seen.defined()) {
    return matmul(softmax(scores, -1), v);
  }
  // The lowest finite number in place of -infinity: a row without any key gets finite probabilities, which become 0.
  const double lowest = q.dtype() == DType::float64 ? std::numeric_limits<double>::lowest()
                                                    : static_cast<double>(std::numeric_limits<float>::lowest());
  const Tensor unseen = full({}, lowest, {.dtype = q.dtype(), .device = q.device()});
  const Tensor p = softmax(where(seen, scores, unseen), -1);
  return matmul(where(seen, p, zeros({}, {.dtype = q.dtype(), .device = q.device()})), v);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& uncast_q, const Tensor& uncast_k, const Tensor& uncast_v,
                                    const AttentionOptions& options) {
  const AutocastOp cast(kOp);
  check_defined(kOp, "q", uncast_q);
  check_defined(kOp, "k", uncast_k);
  check_defined(kOp, "v", uncast_v);
  const Tensor q = cast.input(uncast_q);
  const Tensor k = cast.like(uncast_k, q);
  const Tensor v = cast.like(uncast_v, q);
  AttentionOptions given = options;
  if (given.mask.defined()) {
    given.mask = cast.like(given.mask, q);
  }
  check_arguments(q, k, v, given);
  const double scale = given.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  const DType wide = compute_dtype(q.dtype());
  const Tensor mask = given.mask.defined() && given.mask.dtype() != DType::boolean ? to(given.mask, wide) : given.mask;
  const Tensor y = composed(to(q, wide), to(k, wide), to(v, wide), mask, given.causal, scale);
  return transpose(to(contiguous(transpose(y, 1, 2)), q.dtype()), 1, 2);
}

}  // namespace norma
