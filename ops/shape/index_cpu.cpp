#include "core/strided_loop.h"
#include "ops/shape/kernels.h"

#include <algorithm>

namespace norma::kernels {
namespace {

/// Calls f(x element, y element) for every element of y. One thread takes all rows of its part of a row, in order, so
/// that sums do not depend on the number of threads.
template <class X, class Y, class F>
void for_each_pair(const IndexShape& shape, X* x, const int64_t* index, Y* y, F f) {
  if (shape.count == 0 || shape.sizes.numel() == 0) {
    return;
  }
  const auto loop = make_strided_loop<2>(shape.sizes, {shape.y_strides, shape.x_strides});
  for_each_run(
      loop,
      [&](const std::array<int64_t, 2>& offsets, int64_t count, const std::array<int64_t, 2>& strides) {
        for (int64_t i = 0; i < shape.count; ++i) {
          Y* to = y + offsets[0] + i * shape.y_step;
          X* from = x + offsets[1] + index[i] * shape.x_step;
          for (int64_t j = 0; j < count; ++j) {
            f(from[j * strides[1]], to[j * strides[0]]);
          }
        }
      },
      std::max<int64_t>(kPointwiseGrain / shape.count, 1));
}

void select(const IndexShape& shape, DType dtype, const void* x, const int64_t* index, void* y) {
  dispatch_all(dtype, [&]<class T>(T) {
    for_each_pair(shape, static_cast<const T*>(x), index, static_cast<T*>(y), [](const T& from, T& to) { to = from; });
  });
}

void add(const IndexShape& shape, DType dtype, void* x, const int64_t* index, const void* y) {
  dispatch_any_floating("index_select", dtype, [&]<class T>(T) {
    for_each_pair(shape, static_cast<T*>(x), index, static_cast<const T*>(y), [](T& sum, const T& value) {
      assign(sum, static_cast<compute_t<T>>(sum) + static_cast<compute_t<T>>(value));
    });
  });
}

}  // namespace

constinit const IndexKernels index_cpu{.select = select, .add = add};

}  // namespace norma::kernels
