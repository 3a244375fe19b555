#include "ops/norm/checks.h"

#include "core/copy.h"

namespace norma {

std::string_view to_string(Statistics statistics) {
  switch (statistics) {
    case Statistics::stable: return "stable";
    case Statistics::welford: return "welford";
    case Statistics::two_pass: return "two_pass";
    case Statistics::compensated: return "compensated";
    case Statistics::sum_of_squares: return "sum_of_squares";
  }
  return "?";
}

const std::vector<Statistics>& all_statistics() {
  static const std::vector<Statistics> all = {Statistics::stable, Statistics::welford, Statistics::two_pass,
                                              Statistics::compensated, Statistics::sum_of_squares};
  return all;
}

Statistics statistics_from_string(std::string_view name) {
  for (const Statistics statistics : all_statistics()) {
    if (to_string(statistics) == name) {
      return statistics;
    }
  }
  fail("norm", "statistics: expected stable, welford, two_pass, compensated or sum_of_squares, got {}", name);
}

namespace norm_detail {

namespace {

void check_norm_dtype(std::string_view op, const Tensor& x) {
  check(is_floating(x.dtype()), op, "input: expected dtype float32, float64, bfloat16 or float16, got {}",
        to_string(x.dtype()));
}

Axes checked_axes(std::string_view op, std::string_view argument, const Axes& axes, int64_t rank) {
  Axes result;
  for (const int64_t axis : axes) {
    check(axis >= -rank && axis < rank, op, "{}: expected axes in [{}, {}), got {}", argument, -rank, rank,
          to_string(axes));
    const int64_t positive = axis < 0 ? axis + rank : axis;
    check(!result.contains(positive), op, "{}: expected each axis once, got {}", argument, to_string(axes));
    result.push_back(positive);
  }
  result.sort();
  return result;
}

int64_t elements_of_a_set(const Tensor& x, const NormSpec& spec) {
  int64_t count = 1;
  for (const int64_t axis : spec.reduce) {
    count *= x.size(axis);
  }
  return count / spec.groups;
}

}  // namespace

void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high) {
  check_defined(op, "input", x);
  check_norm_dtype(op, x);
  check(x.rank() >= low && x.rank() <= high, op, "input: expected rank {} to {}, got rank {} (sizes {})", low, high,
        x.rank(), to_string(x.sizes()));
}

void check_parameter(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x) {
  if (parameter.dtype() != compute_dtype(x.dtype())) {
    check_dtype(op, argument, parameter, x.dtype());
  }
  check_device(op, argument, parameter, x.device());
}

void check_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x) {
  check_sizes(op, argument, parameter, {x.size(1)});
  check_parameter(op, argument, parameter, x);
}

void check_optional_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter,
                                const Tensor& x) {
  if (parameter.defined()) {
    check_per_channel(op, argument, parameter, x);
  }
}

bool check_running_statistics(std::string_view op, const Tensor& running_mean, const Tensor& running_var,
                              const Tensor& x) {
  if (!running_mean.defined() && !running_var.defined()) {
    return false;
  }
  check_per_channel(op, "running_mean", running_mean, x);
  check_per_channel(op, "running_var", running_var, x);
  return true;
}

Axes axes_from(int64_t first, int64_t last) {
  Axes axes;
  for (int64_t axis = first; axis < last; ++axis) {
    axes.push_back(axis);
  }
  return axes;
}

Sizes sizes_along(const Tensor& x, const Axes& axes) {
  Sizes sizes;
  for (const int64_t axis : axes) {
    sizes.push_back(x.size(axis));
  }
  return sizes;
}

NormSpec checked_spec(std::string_view op, const Tensor& x, const NormSpec& spec) {
  check_defined(op, "input", x);
  check_norm_dtype(op, x);
  check(spec.eps >= 0, op, "eps: expected a value >= 0, got {}", spec.eps);
  check(!spec.reduce.empty(), op, "reduce: expected at least 1 axis, got []");
  NormSpec result = spec;
  result.reduce = checked_axes(op, "reduce", spec.reduce, x.rank());
  result.affine = checked_axes(op, "affine", spec.affine, x.rank());
  check(spec.groups >= 1, op, "groups: expected at least 1, got {}", spec.groups);
  if (spec.groups > 1) {
    check(result.reduce.contains(1), op, "reduce: expected axis 1 among the axes with groups > 1, got {}",
          to_string(spec.reduce));
    check(x.size(1) % spec.groups == 0, op,
          "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", x.size(1), spec.groups);
  }
  check(spec.correction >= 0, op, "correction: expected a value >= 0, got {}", spec.correction);
  if (spec.correction > 0) {
    check(spec.centring != Centring::none, op, "correction: expected 0 for a root mean square, got {}",
          spec.correction);
    const int64_t count = elements_of_a_set(x, result);
    check(x.numel() == 0 || count > spec.correction, op,
          "input: expected more than {} values in each set with correction {}, got {} (sizes {})", spec.correction,
          spec.correction, count, to_string(x.sizes()));
  }
  return result;
}

void check_affine(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x,
                  const Axes& affine) {
  if (parameter.defined()) {
    check_sizes(op, argument, parameter, sizes_along(x, affine));
    check_parameter(op, argument, parameter, x);
  }
}

}  // namespace norm_detail

}  // namespace norma
