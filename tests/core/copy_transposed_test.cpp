#include "core/kernels.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

using namespace norma;

namespace {

/// Copies two planes of (rows, columns) out of memory in which the rows are innermost, with a gap behind each column.
/// The memory is exactly as large as that, for AddressSanitizer.
template <class T>
int64_t count_wrong(DType dtype, int64_t rows, int64_t columns) {
  constexpr int64_t kPlanes = 2;
  const int64_t column_stride = rows + 1;
  const int64_t plane_stride = columns * column_stride;
  const auto size = static_cast<size_t>(kPlanes * plane_stride - 1);
  const auto src = std::make_unique<T[]>(size);
  for (size_t i = 0; i < size; ++i) {
    src[i] = static_cast<T>(i * 2654435761U >> 7);
  }
  const auto dst = std::make_unique<T[]>(static_cast<size_t>(kPlanes * rows * columns));
  const auto loop = make_strided_loop<2>(
      {kPlanes, rows, columns}, {Strides{rows * columns, columns, 1}, Strides{plane_stride, 1, column_stride}});
  kernels::tensor_cpu.copy(loop, dtype, dst.get(), dtype, src.get());
  int64_t wrong = 0;
  for (int64_t plane = 0; plane < kPlanes; ++plane) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const T got = dst[static_cast<size_t>((plane * rows + row) * columns + column)];
        wrong += got == src[static_cast<size_t>(plane * plane_stride + row + column * column_stride)] ? 0 : 1;
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("copy: transposed, in blocks and what is left over, elements of every size") {
  for (const int64_t rows : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 67}) {
    for (const int64_t columns : {1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 41}) {
      CAPTURE(rows);
      CAPTURE(columns);
      CHECK(count_wrong<uint8_t>(DType::uint8, rows, columns) == 0);
      CHECK(count_wrong<uint16_t>(DType::float16, rows, columns) == 0);
      CHECK(count_wrong<int32_t>(DType::int32, rows, columns) == 0);
      CHECK(count_wrong<int64_t>(DType::int64, rows, columns) == 0);
    }
  }
}
