#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/transpose.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/tensor_kernels.h"
#include "core/simd/call.h"
#include "core/simd/targets.h"

#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// One plane: to[row * row_stride + column] = from[row + column * column_stride].
template <class T>
struct Plane {
  T* to;
  const T* from;
  int64_t row_stride;
  int64_t column_stride;
};

/// Registers of up to 32 bytes. Highway interleaves in parts of 16 bytes.
template <class T>
using Tag = hn::CappedTag<T, 32 / sizeof(T)>;
template <class T>
inline constexpr int64_t kBlockColumns = 16 / sizeof(T);
template <class T>
inline constexpr int64_t kBlockRows = static_cast<int64_t>(hn::MaxLanes(Tag<T>{}));

/// Writes a register's parts of 16 bytes to rows that are kBlockColumns<T> apart.
template <class T, class D>
HWY_INLINE void store_parts(D tag, hn::Vec<D> value, T* to, int64_t row_stride) {
  if constexpr (hn::MaxLanes(tag) * sizeof(T) == 16) {
    hn::StoreU(value, tag, to);
  } else {
    constexpr hn::Half<D> half;
    store_parts(half, hn::LowerHalf(half, value), to, row_stride);
    store_parts(half, hn::UpperHalf(half, value), to + kBlockColumns<T> * row_stride, row_stride);
  }
}

/// A block of kBlockRows<T> rows and kBlockColumns<T> columns, in registers.
template <class T>
HWY_INLINE void copy_block(Plane<T> plane, int64_t row, int64_t column) {
  constexpr int kCount = static_cast<int>(kBlockColumns<T>);
  constexpr Tag<T> kTag;
  const T* from = plane.from + row + column * plane.column_stride;
  T* to = plane.to + row * plane.row_stride + column;
  hn::Vec<Tag<T>> now[kCount];
  hn::Vec<Tag<T>> next[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    now[i] = hn::LoadU(kTag, from + i * plane.column_stride);
  }
  // Each round halves the distance between the columns of a row; after the last they are neighbours.
#pragma GCC unroll 3
  for (int round = 1; round < kCount; round *= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < kCount / 2; ++i) {
      next[2 * i] = hn::InterleaveLower(kTag, now[i], now[i + kCount / 2]);
      next[2 * i + 1] = hn::InterleaveUpper(kTag, now[i], now[i + kCount / 2]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      now[i] = next[i];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    store_parts(kTag, now[i], to + i * plane.row_stride, plane.row_stride);
  }
}

/// Copies the numbers that the blocks leave over, one by one.
template <class T>
HWY_INLINE void copy_numbers(Plane<T> plane, int64_t first_row, int64_t last_row, int64_t first_column,
                             int64_t last_column) {
  for (int64_t row = first_row; row < last_row; ++row) {
    for (int64_t column = first_column; column < last_column; ++column) {
      plane.to[row * plane.row_stride + column] = plane.from[row + column * plane.column_stride];
    }
  }
}

template <class T>
void copy_tile(Plane<T> plane, int64_t first_row, int64_t last_row, int64_t first_column, int64_t last_column) {
  int64_t row = first_row;  // where the blocks end
  int64_t column = first_column;
  if constexpr (sizeof(T) > 1) {
    row += (last_row - first_row) / kBlockRows<T> * kBlockRows<T>;
    column += (last_column - first_column) / kBlockColumns<T> * kBlockColumns<T>;
    for (int64_t r = first_row; r < row; r += kBlockRows<T>) {
      for (int64_t c = first_column; c < column; c += kBlockColumns<T>) {
        copy_block(plane, r, c);
      }
    }
  }
  copy_numbers(plane, first_row, row, column, last_column);
  copy_numbers(plane, row, last_row, first_column, last_column);
}

/// Copies in square tiles, so that every cache line fetched from src is used up before it is evicted.
template <class T>
void copy_transposed_as(const StridedLoop<2>& loop, int64_t across, T* dst, const T* src) {
  constexpr int64_t kTile = 32;
  const int64_t last = loop.sizes.size() - 1;
  const int64_t rows = loop.sizes[across];
  const int64_t columns = loop.sizes[last];
  const int64_t row_tiles = (rows + kTile - 1) / kTile;
  int64_t planes = 1;
  for (int64_t axis = 0; axis < last; ++axis) {
    planes *= axis == across ? 1 : loop.sizes[axis];
  }
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (kTile * columns));
  parallel_for(0, planes * row_tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t rest = task / row_tiles;
      Plane<T> plane{dst, src, loop.strides[0][across], loop.strides[1][last]};
      for (int64_t axis = last - 1; axis >= 0; --axis) {
        if (axis != across) {
          const int64_t index = rest % loop.sizes[axis];
          rest /= loop.sizes[axis];
          plane.to += index * loop.strides[0][axis];
          plane.from += index * loop.strides[1][axis];
        }
      }
      const int64_t first_row = task % row_tiles * kTile;
      const int64_t last_row = std::min(rows, first_row + kTile);
      for (int64_t first = 0; first < columns; first += kTile) {
        copy_tile(plane, first_row, last_row, first, std::min(columns, first + kTile));
      }
    }
  });
}

}  // namespace

void copy_transposed(size_t element_bytes, const StridedLoop<2>& loop, int64_t across, void* dst, const void* src) {
  dispatch_word("copy", element_bytes, [&]<class T>(T) {
    copy_transposed_as(loop, across, static_cast<T*>(dst), static_cast<const T*>(src));
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

void copy_transposed(size_t element_bytes, const StridedLoop<2>& loop, int64_t across, void* dst, const void* src) {
  NORMA_SIMD_CALL(copy_transposed)(element_bytes, loop, across, dst, src);
}

}  // namespace norma::kernels::cpu
#endif
