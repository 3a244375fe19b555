#include "core/parallel.h"
#include "ops/matmul/kernels.h"

#include <Eigen/Core>

#include <algorithm>

namespace norma::kernels {

namespace {

using Eigen::Dynamic;

template <class T, int kOrder>
auto map(const T* data, int64_t rows, int64_t columns, int64_t stride) {
  return Eigen::Map<const Eigen::Matrix<T, Dynamic, Dynamic, kOrder>, Eigen::Unaligned, Eigen::OuterStride<>>(
      data, rows, columns, Eigen::OuterStride<>(stride));
}

/// Calls f(matrix) with a matrix whose order Eigen knows at compile time.
template <class T, class F>
void with_order(const T* data, int64_t rows, int64_t columns, int64_t row, int64_t column, F&& f) {
  if (column == 1) {
    f(map<T, Eigen::RowMajor>(data, rows, columns, row));
  } else {
    f(map<T, Eigen::ColMajor>(data, rows, columns, column));
  }
}

template <class T>
void multiply_block(const MatmulCase& p, const T* a, const T* b, const T* bias, int64_t m, int64_t n, T* c) {
  Eigen::Map<Eigen::Matrix<T, Dynamic, Dynamic, Eigen::RowMajor>, Eigen::Unaligned, Eigen::OuterStride<>> out(
      c, m, n, Eigen::OuterStride<>(p.c_row));
  with_order(a, m, p.k, p.a_row, p.a_column, [&](const auto& left) {
    with_order(b, p.k, n, p.b_row, p.b_column, [&](const auto& right) { out.noalias() = left * right; });
  });
  if (bias != nullptr) {
    out.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, Dynamic>>(bias, n);
  }
}

template <class T>
void multiply(const MatmulCase& p, const T* a, const T* b, const T* bias, T* c) {
  // The longer side of c is cut into parts by the shape alone, since Eigen's order of adding depends on the size of the
  // product.
  constexpr int64_t kPart = 128;
  const bool by_rows = p.m >= p.n;
  const int64_t side = by_rows ? p.m : p.n;
  const int64_t parts = (side + kPart - 1) / kPart;
  const int64_t grain = std::max<int64_t>(1, 128 * 1024 / std::max<int64_t>(1, p.k * kPart * std::min(p.m, p.n)));
  parallel_for(0, p.batch * parts, grain, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t batch = task / parts;
      const int64_t begin = task % parts * kPart;
      const int64_t length = std::min(kPart, side - begin);
      const T* left = a + batch * p.a_batch;
      const T* right = b + batch * p.b_batch;
      T* out = c + batch * p.c_batch;
      if (by_rows) {
        multiply_block(p, left + begin * p.a_row, right, bias, length, p.n, out + begin * p.c_row);
      } else {
        multiply_block(p, left, right + begin * p.b_column, bias == nullptr ? bias : bias + begin, p.m, length,
                       out + begin);
      }
    }
  });
}

bool supports(const MatmulCase& product) {
  return product.dtype == DType::float32 || product.dtype == DType::float64;
}

void multiply_any(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c,
                  Storage* /* keep */) {
  dispatch_floating("matmul", product.dtype, [&]<class T>(T) {
    multiply(product, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<const T*>(bias),
             static_cast<T*>(c));
  });
}

}  // namespace

constinit const MatmulImplementation matmul_eigen{.name = "eigen", .supports = supports, .multiply = multiply_any};

}  // namespace norma::kernels
