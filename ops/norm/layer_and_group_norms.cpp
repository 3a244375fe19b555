#include "ops/norm/checks.h"
#include "ops/norm/norm.h"

#include <algorithm>
#include <limits>

// The norms over a layer, a group or an image: each checks its arguments, fills in a NormSpec and calls norm_act()
// (norm.cpp). batch_norms.cpp has the norms over a batch.

namespace norma {

using namespace norm_detail;

namespace {

/// The last axes of x. Throws Error unless normalized_shape has their sizes.
Axes last_axes(std::string_view op, const Tensor& x, const Sizes& normalized_shape) {
  check_defined(op, "input", x);
  check(!normalized_shape.empty(), op, "normalized_shape: expected at least 1 size, got []");
  const int64_t first = x.rank() - normalized_shape.size();
  const bool fits =
      first >= 0 && std::equal(normalized_shape.begin(), normalized_shape.end(), x.sizes().begin() + first);
  check(fits, op, "normalized_shape: expected the last sizes of the input {}, got {}", to_string(x.sizes()),
        to_string(normalized_shape));
  return axes_from(first, x.rank());
}

/// The value of torch.finfo(dtype).eps; 16 bits are computed in float32.
double machine_epsilon(DType dtype) {
  return dtype == DType::float64 ? std::numeric_limits<double>::epsilon()
                                 : static_cast<double>(std::numeric_limits<float>::epsilon());
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight, const Tensor& bias,
                  const LayerNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = "layer_norm";
  const Axes axes = last_axes(op, x, normalized_shape);
  return norm_act(x, {.reduce = axes, .affine = axes, .statistics = options.statistics, .eps = options.eps}, weight,
                  bias, then, nullptr, op);
}

Tensor layer_norm_2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const LayerNorm2dOptions& options,
                     const ActOptions& then) {
  constexpr std::string_view op = "layer_norm_2d";
  check_rank(op, "input", x, 4);
  return norm_act(x, {.reduce = {1}, .affine = {1}, .statistics = options.statistics, .eps = options.eps}, weight, bias,
                  then, nullptr, op);
}

Tensor rms_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight, const RmsNormOptions& options,
                const ActOptions& then) {
  constexpr std::string_view op = "rms_norm";
  const Axes axes = last_axes(op, x, normalized_shape);
  return norm_act(x,
                  {.reduce = axes,
                   .affine = axes,
                   .eps = options.eps.value_or(machine_epsilon(x.dtype())),
                   .centring = Centring::none},
                  weight, {}, then, nullptr, op);
}

Tensor rms_norm_2d(const Tensor& x, const Tensor& weight, const RmsNorm2dOptions& options, const ActOptions& then) {
  constexpr std::string_view op = "rms_norm_2d";
  check_rank(op, "input", x, 4);
  return norm_act(x, {.reduce = {1}, .affine = {1}, .eps = options.eps, .centring = Centring::none}, weight, {}, then,
                  nullptr, op);
}

Tensor simple_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight,
                   const SimpleNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = "simple_norm";
  const Axes axes = last_axes(op, x, normalized_shape);
  return norm_act(x,
                  {.reduce = axes,
                   .affine = axes,
                   .statistics = options.statistics,
                   .eps = options.eps,
                   .centring = Centring::deviation,
                   .correction = 1},
                  weight, {}, then, nullptr, op);
}

Tensor simple_norm_2d(const Tensor& x, const Tensor& weight, const SimpleNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = "simple_norm_2d";
  check_rank(op, "input", x, 4);
  return norm_act(x,
                  {.reduce = {1},
                   .affine = {1},
                   .statistics = options.statistics,
                   .eps = options.eps,
                   .centring = Centring::deviation,
                   .correction = 1},
                  weight, {}, then, nullptr, op);
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  const GroupNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = "group_norm";
  check_input(op, x, 2, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  return norm_act(x,
                  {.reduce = axes_from(1, x.rank()),
                   .affine = {1},
                   .groups = num_groups,
                   .statistics = options.statistics,
                   .eps = options.eps},
                  weight, bias, then, nullptr, op);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const InstanceNormOptions& options,
                     const ActOptions& then) {
  constexpr std::string_view op = "instance_norm";
  check_input(op, x, 3, 5);
  const int64_t maps = x.size(0) * x.size(1);
  check(maps == 0 || x.numel() / maps != 1, op, "input: expected more than 1 spatial element, got sizes {}",
        to_string(x.sizes()));
  return norm_act(
      x, {.reduce = axes_from(2, x.rank()), .affine = {1}, .statistics = options.statistics, .eps = options.eps},
      weight, bias, then, nullptr, op);
}

}  // namespace norma
