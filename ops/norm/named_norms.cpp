#include "ops/norm/implementation.h"
#include "ops/norm/norm.h"

// The norms with names: each checks its arguments, fills in a NormSpec and calls normalize().

namespace norma {

namespace {

/// first, first + 1, … , last - 1
Axes axes_from(int64_t first, int64_t last) {
  Axes axes;
  for (int64_t axis = first; axis < last; ++axis) {
    axes.push_back(axis);
  }
  return axes;
}

void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high) {
  check_defined(op, "input", x);
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, op,
        "input: expected dtype float32 or float64, got {}", to_string(x.dtype()));
  check(x.rank() >= low && x.rank() <= high, op, "input: expected rank {} to {}, got rank {} (sizes {})", low, high,
        x.rank(), to_string(x.sizes()));
}

void check_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x) {
  check_sizes(op, argument, parameter, {x.size(1)});
  check_dtype(op, argument, parameter, x.dtype());
  check_device(op, argument, parameter, x.device());
}

/// running = (1 - momentum) * running + momentum * batch
void update_running(const Tensor& running, const Tensor& batch, double momentum, double factor) {
  dispatch_floating("batch_norm", running.dtype(), [&](auto t) {
    using T = decltype(t);
    T* to = running.template data<T>();
    const T* from = batch.template data<T>();
    for (int64_t i = 0; i < running.numel(); ++i) {
      T& value = to[i * running.stride(0)];
      value = static_cast<T>((1 - momentum) * value + momentum * (factor * from[i]));
    }
  });
  running.bump_version();
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, const BatchNormOptions& options) {
  constexpr std::string_view op = "batch_norm";
  check_input(op, x, 2, 5);
  const bool tracked = running_mean.defined() || running_var.defined();
  if (tracked) {
    check_per_channel(op, "running_mean", running_mean, x);
    check_per_channel(op, "running_var", running_var, x);
  }
  NormSpec spec{.reduce = axes_from(2, x.rank()), .affine = {1}, .statistics = options.statistics, .eps = options.eps};
  spec.reduce.insert(0, 0);

  if (!options.training && tracked) {
    check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
    for (const auto& [name, parameter] : {std::pair("weight", weight), std::pair("bias", bias)}) {
      if (parameter.defined()) {
        check_per_channel(op, name, parameter, x);
      }
    }
    const norm_kernels::GivenStatistics given{running_mean, running_var};
    return norm_kernels::run_norm(op, x, spec, weight, bias, nullptr, &given);
  }

  const int64_t channels = x.size(1);
  const int64_t count = channels == 0 ? 0 : x.numel() / channels;
  check(count != 1, op, "expected more than 1 value per channel when training, got input sizes {}",
        to_string(x.sizes()));
  check(options.momentum >= 0 && options.momentum <= 1, op, "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  const bool update = tracked && count > 0;
  NormStatistics statistics;
  Tensor y = normalize(x, spec, weight, bias, update ? &statistics : nullptr, op);
  if (update) {
    const auto n = static_cast<double>(count);
    update_running(running_mean, statistics.mean, options.momentum, 1);
    update_running(running_var, statistics.var, options.momentum, n / (n - 1));
  }
  return y;
}

Tensor layer_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight, const Tensor& bias,
                  const LayerNormOptions& options) {
  constexpr std::string_view op = "layer_norm";
  check_defined(op, "input", x);
  check(!normalized_shape.empty(), op, "normalized_shape: expected at least 1 size, got []");
  const int64_t first = x.rank() - normalized_shape.size();
  const bool fits =
      first >= 0 && std::equal(normalized_shape.begin(), normalized_shape.end(), x.sizes().begin() + first);
  check(fits, op, "normalized_shape: expected the last sizes of the input {}, got {}", to_string(x.sizes()),
        to_string(normalized_shape));
  const Axes axes = axes_from(first, x.rank());
  return normalize(x, {.reduce = axes, .affine = axes, .statistics = options.statistics, .eps = options.eps}, weight,
                   bias, nullptr, op);
}

Tensor layer_norm_2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const LayerNormOptions& options) {
  constexpr std::string_view op = "layer_norm_2d";
  check_rank(op, "input", x, 4);
  return normalize(x, {.reduce = {1}, .affine = {1}, .statistics = options.statistics, .eps = options.eps}, weight,
                   bias, nullptr, op);
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  const GroupNormOptions& options) {
  constexpr std::string_view op = "group_norm";
  check_input(op, x, 2, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  return normalize(x,
                   {.reduce = axes_from(1, x.rank()),
                    .affine = {1},
                    .groups = num_groups,
                    .statistics = options.statistics,
                    .eps = options.eps},
                   weight, bias, nullptr, op);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const InstanceNormOptions& options) {
  constexpr std::string_view op = "instance_norm";
  check_input(op, x, 3, 5);
  const int64_t maps = x.size(0) * x.size(1);
  check(maps == 0 || x.numel() / maps != 1, op, "expected more than 1 spatial element, got input sizes {}",
        to_string(x.sizes()));
  return normalize(
      x, {.reduce = axes_from(2, x.rank()), .affine = {1}, .statistics = options.statistics, .eps = options.eps},
      weight, bias, nullptr, op);
}

}  // namespace norma
