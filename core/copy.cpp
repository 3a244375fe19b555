#include "core/copy.h"

#include "core/factory.h"
#include "core/strided_loop.h"

#include <cstring>

namespace norma {
namespace {

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<compute_t<From>>(value) != compute_t<From>(0);
  } else {
    return static_cast<To>(static_cast<compute_t<To>>(static_cast<compute_t<From>>(value)));
  }
}

template <class To, class From>
void copy_run(To* dst, int64_t dst_stride, const From* src, int64_t src_stride, int64_t count) {
  if (dst_stride == 1 && src_stride == 1) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(To));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        dst[i] = convert<To>(src[i]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    dst[i * dst_stride] = convert<To>(src[i * src_stride]);
  }
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
template <class To, class From>
void copy_transposed(To* dst, const From* src, const StridedLoop<2>& loop, int64_t across) {
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
      To* to = dst;
      const From* from = src;
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
            to[row * row_stride + column] = convert<To>(from[row + column * column_stride]);
          }
        }
      }
    }
  });
}

template <class To, class From>
void copy_elements(To* dst, const From* src, const StridedLoop<2>& loop) {
  if (const int64_t across = transposed_axis(loop); across >= 0) {
    copy_transposed(dst, src, loop, across);
    return;
  }
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    copy_run(dst + offsets[0], strides[0], src + offsets[1], strides[1], count);
  });
}

}  // namespace

void copy_into(const Tensor& src, const Tensor& dst) {
  check_defined("copy_into", "src", src);
  check_defined("copy_into", "dst", dst);
  check_device("copy_into", "src", src, dst.device());
  check_available("copy_into", dst.device());
  check(broadcast_sizes("copy_into", src.sizes(), dst.sizes()) == dst.sizes(), "copy_into",
        "src: expected sizes that broadcast to {}, got {}", to_string(dst.sizes()), to_string(src.sizes()));
  dst.bump_version();
  if (dst.numel() == 0) {
    return;
  }
  const auto loop =
      make_strided_loop<2>(dst.sizes(), {dst.strides(), broadcast_strides(src.sizes(), src.strides(), dst.sizes())});
  dispatch_all(dst.dtype(), [&](auto to) {
    dispatch_all(src.dtype(), [&](auto from) {
      copy_elements(dst.data<decltype(to)>(), static_cast<const decltype(from)*>(src.data<decltype(from)>()), loop);
    });
  });
}

Tensor copy_of(const Tensor& x, MemoryFormat format) {
  return copy_of(x, format, x.dtype());
}

Tensor copy_of(const Tensor& x, MemoryFormat format, DType dtype) {
  const Strides strides =
      format == MemoryFormat::preserve ? preserved_strides(x.sizes(), x.strides()) : strides_for(x.sizes(), format);
  Tensor result = empty_strided(x.sizes(), strides, {.dtype = dtype, .device = x.device()});
  copy_into(x, result);
  return result;
}

Tensor contiguous_copy(const Tensor& x, MemoryFormat format) {
  return x.is_contiguous(format) ? x : copy_of(x, format);
}

}  // namespace norma
