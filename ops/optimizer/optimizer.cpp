#include "ops/optimizer/optimizer.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"

#include <string>

namespace norma {
namespace {

/// Calls change(pointer) on the elements of x, side by side, and writes them back if that took a copy.
template <class F>
void change_in_place(std::string_view op, const Tensor& x, F&& change) {
  check_floating(op, "x", x);
  const Tensor dense = is_non_overlapping_and_dense(x) ? x : copy_of(x);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(dense, dense)}; });
  change(dense.device_pointer());
  if (dense.is_same(x)) {
    x.bump_version();
  } else {
    copy_into(dense, x);
  }
}

}  // namespace

void sgd_step(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity, const kernels::SgdStep& step) {
  check_device("sgd", "gradient", gradient, parameter.device());
  const OpScope scope([&] {  // parameter and velocity are read and written
    return OpWork{.op = "sgd", .bytes = 2 * bytes_of(parameter, velocity) + bytes_of(gradient)};
  });
  kernels::optimizer_kernels.at("sgd", parameter.device())
      ->sgd(parameter.dtype(), parameter.numel(), step, parameter.device_pointer(), gradient.device_pointer(),
            pointer_or_null(velocity));
}

void adamw_step(const Tensor& parameter, const Tensor& gradient, const Tensor& average, const Tensor& square_average,
                const kernels::AdamWStep& step) {
  check_device("adamw", "gradient", gradient, parameter.device());
  const OpScope scope([&] {
    return OpWork{.op = "adamw", .bytes = 2 * bytes_of(parameter, average, square_average) + bytes_of(gradient)};
  });
  kernels::optimizer_kernels.at("adamw", parameter.device())
      ->adamw(parameter.dtype(), parameter.numel(), step, parameter.device_pointer(), gradient.device_pointer(),
              average.device_pointer(), square_average.device_pointer());
}

Tensor sums_of_squares(const Tensors& xs, Device device) {
  const Tensor sums = empty({static_cast<int64_t>(xs.size())}, {.dtype = DType::float64, .device = device});
  auto* sum = sums.device_pointer<double>();
  for (const Tensor& x : xs) {
    check_floating("sum_of_squares", "x", x);
    check_device("sum_of_squares", "x", x, device);
    const Tensor dense = is_non_overlapping_and_dense(x) ? x : copy_of(x);
    const OpScope scope([&] { return OpWork{.op = "sum_of_squares", .bytes = bytes_of(dense)}; });
    kernels::optimizer_kernels.at("sum_of_squares", device)
        ->sum_of_squares(dense.dtype(), dense.numel(), dense.device_pointer(), sum++);
  }
  return sums;
}

Tensor clipping_of(const Tensor& sums, double max_norm) {
  const Tensor norm_and_factor = empty({2}, {.dtype = DType::float64, .device = sums.device()});
  kernels::optimizer_kernels.at("clipping", sums.device())
      ->clipping(sums.numel(), sums.device_pointer<double>(), max_norm, norm_and_factor.device_pointer<double>());
  return norm_and_factor;
}

void scale_in_place(std::string_view op, const Tensor& x, const Tensor& factor) {
  check_device(op, "factor", factor, x.device());
  change_in_place(op, x, [&](void* elements) {
    kernels::optimizer_kernels.at(op, x.device())
        ->scale(x.dtype(), x.numel(), factor.device_pointer<double>(), elements);
  });
}

void cut_off_in_place(std::string_view op, const Tensor& x, double limit) {
  change_in_place(op, x, [&](void* elements) {
    kernels::optimizer_kernels.at(op, x.device())->cut_off(x.dtype(), x.numel(), limit, elements);
  });
}

}  // namespace norma
