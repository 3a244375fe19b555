#include "core/buffer.h"
#include "core/parallel.h"
#include "ops/matmul/kernels.h"

#include <algorithm>

namespace norma::kernels {

namespace {

template <class T>
void sum_columns(int64_t rows, int64_t columns, int64_t stride, const T* x, T* sums) {
  // The shape alone decides the parts, so that the sum does not depend on the number of threads.
  const int64_t parts = std::clamp<int64_t>(rows * columns / kPointwiseGrain, 1, 64);
  const Buffer<double> partial(parts * columns);
  parallel_for(0, parts, /* grain= */ 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      double* total = partial.data() + part * columns;
      std::fill(total, total + columns, 0.0);
      for (int64_t row = part * rows / parts; row < (part + 1) * rows / parts; ++row) {
        const T* values = x + row * stride;
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) {
          total[j] += static_cast<double>(static_cast<compute_t<T>>(values[j]));
        }
      }
    }
  });
  for (int64_t j = 0; j < columns; ++j) {
    double total = 0;
    for (int64_t part = 0; part < parts; ++part) {
      total += partial.data()[part * columns + j];
    }
    assign(sums[j], static_cast<compute_t<T>>(total));
  }
}

void column_sum(DType dtype, int64_t rows, int64_t columns, int64_t stride, const void* x, void* sums) {
  dispatch_any_floating("sum", dtype, [&]<class T>(T) {
    sum_columns(rows, columns, stride, static_cast<const T*>(x), static_cast<T*>(sums));
  });
}

Implementations<MatmulImplementation>& implementations() {
  static Implementations<MatmulImplementation> list("matmul", "NORMA_MATMUL", {matmul_onednn, &matmul_eigen},
                                                    matmul_through_float);
  return list;
}

const MatmulImplementation& choose(const MatmulCase& product) {
  // A primitive's call costs about as much as Eigen's whole product of small matrices.
  constexpr int64_t kSmall = 16 * 16 * 16;
  if (implementations().forced() == nullptr && product.batch * product.m * product.n * product.k <= kSmall) {
    return matmul_eigen.supports(product) ? matmul_eigen : matmul_through_float;
  }
  return implementations().choose(product);
}

}  // namespace

constinit const MatmulKernels matmul_cpu{
    .choose = choose, .column_sum = column_sum, .implementations = implementations};

}  // namespace norma::kernels
