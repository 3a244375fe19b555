#include "ops/reduce/device_reduce.h"

namespace norma::kernels::NORMA_BACKEND {

void sum(const ReduceShape& shape, DType dtype, const void* x, void* y, double scale) {
  dispatch_numeric("sum", dtype, [&]<class S>(S) {
    reduce(ReduceAxes(shape), Folding<Sum<S>>{}, static_cast<const S*>(x), nullptr, scale, static_cast<S*>(y));
  });
}

void mean(const ReduceShape& shape, DType dtype, const void* x, double* y, int64_t count) {
  dispatch_floating("var", dtype, [&]<class S>(S) {
    reduce(ReduceAxes(shape), Folding<Sum<S>>{}, static_cast<const S*>(x), nullptr, 1 / static_cast<double>(count), y);
  });
}

void squared_differences(const ReduceShape& shape, DType dtype, const void* x, const double* mean, void* y,
                         double scale) {
  dispatch_floating("var", dtype, [&]<class S>(S) {
    reduce(ReduceAxes(shape), Folding<SquaredDifferences<S>>{}, static_cast<const S*>(x), mean, scale,
           static_cast<S*>(y));
  });
}

void product(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("prod", dtype, [&]<class S>(S) {
    reduce(ReduceAxes(shape), Folding<Product<S>>{}, static_cast<const S*>(x), nullptr, 1, static_cast<S*>(y));
  });
}

void max(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("max", dtype, [&]<class S>(S) {
    reduce(ReduceAxes(shape), Folding<Max<S>>{}, static_cast<const S*>(x), nullptr, 1, static_cast<S*>(y));
  });
}

void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
            const void* x, int64_t* y) {
  ReduceShape shape{.sizes = sizes, .x_strides = x_strides, .y_strides = contiguous_strides(sizes)};
  // The only reduced axis: its steps are the indices.
  shape.sizes.push_back(length);
  shape.x_strides.push_back(stride);
  shape.y_strides.push_back(0);
  dispatch_numeric("argmax", dtype, [&]<class S>(S) {
    reduce(ReduceAxes(shape), Argmax<S>{last}, static_cast<const S*>(x), nullptr, 1, y);
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const ReduceKernels NORMA_TABLE(reduce){.sum = sum,
                                                  .mean = mean,
                                                  .squared_differences = squared_differences,
                                                  .product = product,
                                                  .max = max,
                                                  .argmax = argmax};

}  // namespace norma::kernels
