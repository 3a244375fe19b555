#include "ops/norm/norm.h"

#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/checks.h"
#include "ops/norm/node.h"
#include "ops/norm/operands.h"

namespace norma {

using namespace norm_detail;

Tensor normalize(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                 NormStatistics* statistics, std::string_view op) {
  return norm_act(x, spec, weight, bias, {}, statistics, op);
}

Tensor norm_act(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias, const ActOptions& then,
                NormStatistics* statistics, std::string_view op) {
  const NormSpec checked = checked_spec(op, x, spec);
  check_affine(op, "weight", weight, x, checked.affine);
  check_affine(op, "bias", bias, x, checked.affine);
  return record_norm(op, x, checked, weight, bias, {.statistics = statistics, .then = then});
}

NormStatistics norm_statistics(const Tensor& x, const NormSpec& spec, std::string_view op) {
  return compute_statistics(op, x, checked_spec(op, x, spec));
}

Tensors normalize_backward(const Tensor& dy, const Tensor& x, const NormSpec& spec, const Tensor& weight,
                           const Tensor& bias) {
  constexpr std::string_view op = "normalize_backward";
  NormNode node{.op = "normalize", .spec = checked_spec(op, x, spec)};
  check_defined(op, "dy", dy);
  check_sizes(op, "dy", dy, x.sizes());
  check_dtype(op, "dy", dy, x.dtype());
  check_device(op, "dy", dy, x.device());
  check_affine(op, "weight", weight, x, node.spec.affine);
  check_affine(op, "bias", bias, x, node.spec.affine);
  node.affine = weight.defined() || bias.defined();
  node.bias_dtype = bias.defined() ? bias.dtype() : x.dtype();
  node.x = x;
  node.weight = weight;
  if (x.numel() == 0) {
    node.stats =
        zeros({kernels::stats_rows(spec.centring), 0}, {.dtype = compute_dtype(x.dtype()), .device = x.device()});
  } else {
    // In the walk of a normalize() with weight or bias, and so with its bits.
    const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), node.spec, node.affine);
    node.stats = compute_stats(op, layout, x, node.spec);
  }
  Tensors gradients = record_norm_backward(node, dy, {true, weight.defined(), bias.defined(), false});
  gradients.pop_back();
  return gradients;
}

}  // namespace norma
