#include "core/cpu/tensor_kernels.h"

#include <cstring>

namespace norma::kernels::cpu {
namespace {

template <class To, class From>
void convert(To& to, From value) {
  if constexpr (std::is_same_v<To, From>) {
    to = value;
  } else if constexpr (std::is_same_v<To, bool>) {
    to = static_cast<compute_t<From>>(value) != compute_t<From>(0);
  } else {
    assign(to, static_cast<compute_t<To>>(static_cast<compute_t<From>>(value)));
  }
}

/// A run of elements: strides in elements, any dtypes.
using CopyRun = void (*)(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t count);

template <class To, class From>
void convert_run(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t count) {
  auto* to = static_cast<To*>(dst);
  const auto* from = static_cast<const From*>(src);
  if (dst_stride == 1 && src_stride == 1) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      convert(to[i], from[i]);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    convert(to[i * dst_stride], from[i * src_stride]);
  }
}

CopyRun find_copy_run(DType to, DType from) {
  return dispatch_all(to, [&](auto t) {
    return dispatch_all(from, [](auto f) -> CopyRun { return convert_run<decltype(t), decltype(f)>; });
  });
}

/// The axis along which src is innermost while dst is innermost along the last one; -1 if src runs along with dst.
int64_t transposed_axis(const StridedLoop<2>& loop) {
  const int64_t last = loop.sizes.size() - 1;
  if (loop.strides[0][last] != 1 || loop.strides[1][last] <= 1) {
    return -1;
  }
  for (int64_t axis = 0; axis < last; ++axis) {
    if (loop.strides[1][axis] == 1) {
      return axis;
    }
  }
  return -1;
}

/// Copies in square tiles, so that every cache line fetched from src is used up before it is evicted.
template <class T>
void copy_transposed(T* dst, const T* src, const StridedLoop<2>& loop, int64_t across) {
  constexpr int64_t kTile = 32;
  const int64_t last = loop.sizes.size() - 1;
  const int64_t rows = loop.sizes[across];
  const int64_t columns = loop.sizes[last];
  const int64_t row_stride = loop.strides[0][across];
  const int64_t column_stride = loop.strides[1][last];
  const int64_t row_tiles = (rows + kTile - 1) / kTile;
  int64_t planes = 1;
  for (int64_t axis = 0; axis < last; ++axis) {
    planes *= axis == across ? 1 : loop.sizes[axis];
  }
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (kTile * columns));
  parallel_for(0, planes * row_tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t plane = task / row_tiles;
      T* to = dst;
      const T* from = src;
      for (int64_t axis = last - 1; axis >= 0; --axis) {
        if (axis != across) {
          const int64_t index = plane % loop.sizes[axis];
          plane /= loop.sizes[axis];
          to += index * loop.strides[0][axis];
          from += index * loop.strides[1][axis];
        }
      }
      const int64_t first_row = task % row_tiles * kTile;
      const int64_t last_row = std::min(rows, first_row + kTile);
      for (int64_t first = 0; first < columns; first += kTile) {
        const int64_t stop = std::min(columns, first + kTile);
        for (int64_t row = first_row; row < last_row; ++row) {
          for (int64_t column = first; column < stop; ++column) {
            to[row * row_stride + column] = from[row + column * column_stride];
          }
        }
      }
    }
  });
}

/// A word that may stand for an element of any dtype of its size.
template <class T>
using AnyElement [[gnu::may_alias]] = T;

/// Moves elements as words of their size: what they mean does not matter.
template <class Word>
void move_elements(const StridedLoop<2>& loop, void* dst, const void* src) {
  auto* to = static_cast<Word*>(dst);
  const auto* from = static_cast<const Word*>(src);
  if (const int64_t across = transposed_axis(loop); across >= 0) {
    copy_transposed(to, from, loop, across);
    return;
  }
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    if (strides[0] == 1 && strides[1] == 1) {
      std::memcpy(to + offsets[0], from + offsets[1], static_cast<size_t>(count) * sizeof(Word));
    } else {
      convert_run<Word, Word>(to + offsets[0], strides[0], from + offsets[1], strides[1], count);
    }
  });
}

void convert_elements(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  const CopyRun run = find_copy_run(dst_dtype, src_dtype);
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const auto to_size = static_cast<int64_t>(size_of(dst_dtype));
  const auto from_size = static_cast<int64_t>(size_of(src_dtype));
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    run(to + offsets[0] * to_size, strides[0], from + offsets[1] * from_size, strides[1], count);
  });
}

}  // namespace

void copy(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  if (dst_dtype != src_dtype) {
    convert_elements(loop, dst_dtype, dst, src_dtype, src);
    return;
  }
  switch (size_of(dst_dtype)) {
    case 1: return move_elements<AnyElement<uint8_t>>(loop, dst, src);
    case 2: return move_elements<AnyElement<uint16_t>>(loop, dst, src);
    case 4: return move_elements<AnyElement<uint32_t>>(loop, dst, src);
    default: return move_elements<AnyElement<uint64_t>>(loop, dst, src);
  }
}

}  // namespace norma::kernels::cpu
