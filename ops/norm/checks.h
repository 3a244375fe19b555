#pragma once

#include "ops/norm/norm.h"

#include <string_view>

// Checks that every norm makes of its arguments. All throw Error.

namespace norma::norm_detail {

/// x has a floating dtype and `low` to `high` axes.
void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high);
/// A parameter of a norm has the device of x, and its dtype, or float32 beside bfloat16 and float16.
void check_parameter(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x);
/// A parameter has sizes (C).
void check_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x);
/// A parameter has sizes (C) or is undefined.
void check_optional_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter,
                                const Tensor& x);
/// A weight or bias has the sizes of x along the axes `affine`, or is undefined.
void check_affine(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x,
                  const Axes& affine);
/// Returns the spec with its axes sorted and not negative, if x can have it.
NormSpec checked_spec(std::string_view op, const Tensor& x, const NormSpec& spec);
/// True iff running_mean and running_var are defined, both of (C); false iff both are undefined.
bool check_running_statistics(std::string_view op, const Tensor& running_mean, const Tensor& running_var,
                              const Tensor& x);

/// first, first + 1, … , last - 1
Axes axes_from(int64_t first, int64_t last);
Sizes sizes_along(const Tensor& x, const Axes& axes);

}  // namespace norma::norm_detail
