#include "ops/reduce/device_reduce.h"

namespace norma::kernels::NORMA_BACKEND {

void fold(Fold f, const ReduceShape& shape, DType dtype, const void* x, const double* mean, void* y, double scale) {
  with_fold(f, dtype, [&]<class Operation, class S, class Y>(Folded<Operation, S, Y>) {
    reduce(ReduceAxes(shape), Folding<Operation>{}, static_cast<const S*>(x), mean, scale, static_cast<Y*>(y));
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

constinit const ReduceKernels NORMA_TABLE(reduce){.fold = fold, .argmax = argmax};

}  // namespace norma::kernels
