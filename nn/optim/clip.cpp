#include "nn/optim/clip.h"

#include "core/copy.h"
#include "core/op_profile.h"
#include "core/parallel.h"
#include "core/tape.h"

#include <algorithm>
#include <cmath>

namespace norma::nn {
namespace {

// Elements of one partial sum: fixed, so that the norm has the same bits for any number of threads.
constexpr int64_t kBlock = 4096;

double sum_of_squares(const Tensor& gradient) {
  const Tensor x = is_non_overlapping_and_dense(gradient.sizes(), gradient.strides()) ? gradient : copy_of(gradient);
  const OpScope scope([&] { return OpWork{.op = "clip_sum_of_squares", .bytes = bytes_of(x)}; });
  const int64_t count = x.numel();
  std::vector<double> partial(static_cast<size_t>((count + kBlock - 1) / kBlock));
  dispatch_any_floating("clip_gradients_by_norm", x.dtype(), [&]<class T>(T) {
    const T* values = x.data<T>();
    parallel_for(0, static_cast<int64_t>(partial.size()), kPointwiseGrain / kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t last = std::min(count, (block + 1) * kBlock);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = block * kBlock; i < last; ++i) {
          const auto value = static_cast<double>(static_cast<compute_t<T>>(values[i]));
          sum += value * value;
        }
        partial[static_cast<size_t>(block)] = sum;
      }
    });
  });
  double total = 0;
  for (const double sum : partial) {
    total += sum;
  }
  return total;
}

// Calls f(value) for every element and writes the result in its place.
template <class F>
void change_elements(std::string_view op, const Tensor& gradient, F&& f) {
  const bool dense = is_non_overlapping_and_dense(gradient.sizes(), gradient.strides());
  const Tensor x = dense ? gradient : copy_of(gradient);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  dispatch_any_floating(op, x.dtype(), [&]<class T>(T) {
    T* values = x.data<T>();
    parallel_for(0, x.numel(), kPointwiseGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        assign(values[i], f(static_cast<compute_t<T>>(values[i])));
      }
    });
  });
  if (dense) {
    gradient.bump_version();
  } else {
    copy_into(x, gradient);
  }
}

}  // namespace

double clip_gradients_by_norm(const Tensors& parameters, double max_norm) {
  const OpPassGuard pass(OpPass::optimizer);
  check(max_norm > 0, "clip_gradients_by_norm", "max_norm: expected a positive number, got {}", max_norm);
  double total = 0;
  for (const Tensor& x : parameters) {
    if (x.grad().defined()) {
      total += sum_of_squares(x.grad());
    }
  }
  const double norm = std::sqrt(total);
  // As in PyTorch: the small number keeps the result below max_norm in spite of rounding.
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1) {
    for (const Tensor& x : parameters) {
      if (x.grad().defined()) {
        change_elements("clip_gradients_by_norm", x.grad(),
                        [scale]<class T>(T value) { return static_cast<T>(value * static_cast<T>(scale)); });
      }
    }
  }
  return norm;
}

void clip_gradients_by_value(const Tensors& parameters, double limit) {
  const OpPassGuard pass(OpPass::optimizer);
  check(limit >= 0, "clip_gradients_by_value", "limit: expected a number >= 0, got {}", limit);
  for (const Tensor& x : parameters) {
    if (x.grad().defined()) {
      change_elements("clip_gradients_by_value", x.grad(), [limit]<class T>(T value) {
        const auto bound = static_cast<T>(limit);
        return value < -bound ? -bound : value > bound ? bound : value;
      });
    }
  }
}

}  // namespace norma::nn
