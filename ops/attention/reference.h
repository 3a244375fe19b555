#pragma once

#include "core/tensor.h"

namespace norma {

/// The arguments of attention after checks and defaults. Tensors may have any floating dtype and any strides, and lie
/// on any device.
struct AttentionReferenceInputs {
  Tensor q, k, v;
  Tensor mask = {};  ///< as in AttentionOptions
  bool causal = false;
  double scale = 1;
  Tensor dy = {};  ///< the gradient of the result; undefined: there are no gradients to ask for
};

/// float64 and contiguous. The gradients are undefined without dy, and that of the mask without a floating mask.
struct AttentionReferenceResults {
  Tensor y;
  Tensor dq, dk, dv, dmask;  ///< dmask (N, heads, L, S), before it is added up over the axes that the mask lacks
};

/// Attention and its gradients by their definition: plain loops in float64. For query i of a head and the keys j that
/// it sees,
///
///   z_j = scale · q_i · k_j + mask_ij,  p_j = exp(z_j) / sum(exp(z)),  y_i = sum(p_j v_j)
///   dp_j = dy_i · v_j,  dz_j = p_j (dp_j - sum(p dp))
///   dq_i = scale · sum(dz_j k_j),  dk_j += scale · dz_j q_i,  dv_j += p_j dy_i,  dmask_ij = dz_j
///
/// Tests compare the kernels with this, and NORMA_ATTENTION=reference puts it in their place.
AttentionReferenceResults attention_by_definition(const AttentionReferenceInputs& inputs);

}  // namespace norma
