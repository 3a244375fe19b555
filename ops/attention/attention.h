#pragma once

#include "core/tensor.h"

#include <optional>

namespace norma {

class BackwardContext;

struct AttentionOptions {
  std::optional<double> scale = {};  ///< of the products q · k; without a value 1 / sqrt(E)
  bool causal = false;               ///< query i sees the keys 0 … i alone
  /// Broadcast to (N, heads, L, S). bool: a query sees the keys where it is true. q's dtype: it is added to the
  /// scaled products. Undefined: every query sees every key.
  Tensor mask = {};
};

/// Attention: softmax(scale · q kᵀ + mask) v over the keys, for each image and head. q (N, heads, L, E), k (N, heads,
/// S, E), v (N, heads, S, Ev) of one floating dtype; the result is (N, heads, L, Ev) of that dtype. A query that sees
/// no key gets zeros, as in PyTorch 2.5 and later. With 16 bits, sums
/// and softmax are float32; operands of products have 16 bits where the device multiplies such numbers, so that
/// probabilities and the gradients of scores are rounded, as in PyTorch's fused kernels.
/// Any strides: q, k and v may be views of one tensor (N, L, 3, heads, E), and an operand is copied only if the
/// rows or columns of its matrices are no runs of memory. The result is a view of memory in the order (N, L, heads,
/// Ev), whatever q's: transpose(1, 2) and reshape to tokens (N, L, heads · Ev) move no element. Differentiable in q, k,
/// v and a floating mask, also twice. The backward pass keeps the operands and two numbers for each query, and computes
/// the probabilities again, a tile of queries at a time. Only the gradient of a floating mask takes memory for (N,
/// heads, L, S) while it runs. On the CPU it gives each thread whole heads: one head of one image has one thread. A NaN
/// in v at a hidden key may spread, since its probability 0 times NaN is NaN.
/// Vaswani et al., "Attention is all you need", 2017; Dao et al., "FlashAttention", 2022.
/// Throws Error "scaled_dot_product_attention: …" unless the ranks are 4 and sizes, dtypes and devices fit; for E = 0;
/// for a mask that does not broadcast or has another dtype; for a mask with `causal`; and for a scale that is not
/// finite.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

/// The scaled products of queries and keys, as differentiable ops, in the dtype of the computation: (N, heads, L, S).
struct AttentionScores {
  Tensor z;     ///< scale · q kᵀ + mask; the lowest finite number where a query does not see the key
  Tensor seen;  ///< bool, broadcasts to z: where it does; undefined: everywhere
};
AttentionScores attention_scores(const Tensor& q, const Tensor& k, const Tensor& mask, bool causal, double scale);

/// The backward function of a recorded call, whose Node has saved q, k, v and the mask as numbers 0 to 3. Whoever looks
/// at a tape learns from it how the call was made: node.backward.target<AttentionBackward>().
struct AttentionBackward {
  bool causal;
  double scale;
  bool by_definition;  ///< attention_reference(), in forward: the definition leaves no stats

  Tensors operator()(const Tensors& dy, const BackwardContext& context) const;
};

/// True iff attention_by_definition() (reference.h) computes attention in place of the device's kernels.
/// NORMA_ATTENTION=reference, or the last call of set_attention_reference(), says so. Throws Error if NORMA_ATTENTION
/// is something else.
bool attention_reference();
void set_attention_reference(bool on);

}  // namespace norma
