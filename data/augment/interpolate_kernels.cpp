#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/augment/interpolate_kernels.cpp"
#include "core/simd/foreach_target.h"

#include "data/augment/interpolate_kernels.h"

#include "core/simd/lanes.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace norma::data::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::Parts;

/// A pixel in color and the byte after it, as four numbers side by side in one register or two.
using Doubles = hn::CappedTag<double, 4>;
using Pixel = Parts<hn::Vec<Doubles>, 4 / static_cast<int>(hn::MaxLanes(Doubles{}))>;

HWY_INLINE void set(double value, double& all) {
  all = value;
}
template <class R>
HWY_INLINE void set(double value, Parts<R, 1>& all) {
  all.only = hn::Set(hn::DFromV<R>{}, value);
}
template <class R>
HWY_INLINE void set(double value, Parts<R, 2>& all) {
  set(value, all.low);
  all.high = all.low;
}
template <class T>
HWY_INLINE T number(double value) {
  T all;
  set(value, all);
  return all;
}

using Ints = hn::CappedTag<int32_t, 4>;
using Bytes = hn::CappedTag<uint8_t, 4>;

template <class R>
HWY_INLINE void load(const uint8_t* from, Parts<R, 1>& pixel) {
  pixel.only = hn::PromoteTo(hn::DFromV<R>{}, hn::PromoteTo(Ints{}, hn::LoadU(Bytes{}, from)));
}
template <class R>
HWY_INLINE void load(const uint8_t* from, Parts<R, 2>& pixel) {
  constexpr hn::Rebind<int32_t, hn::DFromV<R>> part;
  const auto numbers = hn::PromoteTo(Ints{}, hn::LoadU(Bytes{}, from));
  pixel.low.only = hn::PromoteTo(hn::DFromV<R>{}, hn::LowerHalf(part, numbers));
  pixel.high.only = hn::PromoteTo(hn::DFromV<R>{}, hn::UpperHalf(part, numbers));
}
HWY_INLINE void load(const uint8_t* from, double& value) {
  value = *from;
}

/// Whole numbers from 0 to 255, with fractions cut off.
template <class R>
HWY_INLINE auto whole_numbers(R value) {
  constexpr hn::DFromV<R> tag;
  return hn::DemoteTo(hn::Rebind<int32_t, decltype(tag)>{},
                      hn::Min(hn::Max(value, hn::Zero(tag)), hn::Set(tag, 255.0)));
}
template <class R>
HWY_INLINE auto whole_numbers(const Parts<R, 1>& pixel) {
  return whole_numbers(pixel.only);
}
template <class R>
HWY_INLINE auto whole_numbers(const Parts<R, 2>& pixel) {
  return hn::Combine(Ints{}, whole_numbers(pixel.high.only), whole_numbers(pixel.low.only));
}
HWY_INLINE void store(const Pixel& pixel, uint8_t* to) {
  const uint32_t four =
      hn::GetLane(hn::BitCast(hn::CappedTag<uint32_t, 1>{}, hn::DemoteTo(Bytes{}, whole_numbers(pixel))));
  std::memcpy(to, &four, 3);
}
HWY_INLINE void store(double value, uint8_t* to) {
  *to = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
}

// Interpolation along one axis, d after the pixel before; for all channels at once. T is double for grey images, else
// Pixel.

/// v0 + (v1 - v0) d
template <class T>
HWY_INLINE T interpolate(const std::array<T, 2>& v, const T& d) {
  return v[0] + (v[1] - v[0]) * d;
}

/// The cubic of Keys with a = -1: v1 + d (p2 + d (p3 + d p4)).
template <class T>
HWY_INLINE T interpolate(const std::array<T, 4>& v, const T& d) {
  const T p2 = v[2] - v[0];
  const T p3 = number<T>(2.0) * (v[0] - v[1]) + v[2] - v[3];
  const T p4 = v[1] - v[0] - v[2] + v[3];
  return v[1] + d * (p2 + d * (p3 + d * p4));
}

/// The pixel before the place, if d is 0 on this axis: every formula gives v1 + 0.
template <class T>
HWY_INLINE T interpolate(const std::array<T, 1>& v, const T& /*d*/) {
  return v[0];
}

/// Interpolates from kRows x kColumns pixels; 1 on an axis where all places are middles of pixels.
template <size_t kRows, size_t kColumns, class T>
void interpolate_image(const Interpolation2d& job) {
  constexpr int64_t above = static_cast<int64_t>(kRows + 1) / 2 - 1;  // pixels on the lower side
  constexpr int64_t before = static_cast<int64_t>(kColumns + 1) / 2 - 1;
  const auto& m = job.matrix;
  const int64_t row_bytes = job.width * job.channels;
  uint8_t* to = job.to;
  for (int64_t y = 0; y < job.height; ++y) {
    for (int64_t x = 0; x < job.width; ++x, to += job.channels) {
      const double middle_x = static_cast<double>(x) + 0.5;
      const double middle_y = static_cast<double>(y) + 0.5;
      double place_x = m[0] * middle_x + m[1] * middle_y + m[2];
      double place_y = m[3] * middle_x + m[4] * middle_y + m[5];
      if (!(place_x >= 0 && place_x < static_cast<double>(job.width) && place_y >= 0 &&
            place_y < static_cast<double>(job.height))) {
        continue;
      }
      place_x -= 0.5;
      place_y -= 0.5;
      const auto left = static_cast<int64_t>(std::floor(place_x));
      const auto top = static_cast<int64_t>(std::floor(place_y));
      const T across = number<T>(place_x - static_cast<double>(left));
      const T down = number<T>(place_y - static_cast<double>(top));
      const auto write_pixel = [&](auto&& address) HWY_ATTR {
        std::array<T, kRows> of_rows;
        for (size_t i = 0; i < kRows; ++i) {
          std::array<T, kColumns> row;
          for (size_t k = 0; k < kColumns; ++k) {
            load(address(static_cast<int64_t>(i), static_cast<int64_t>(k)), row[k]);
          }
          of_rows[i] = interpolate(row, across);
        }
        store(interpolate(of_rows, down), to);
      };
      const int64_t row = top - above;
      const int64_t column = left - before;
      if (row >= 0 && row + static_cast<int64_t>(kRows) <= job.height && column >= 0 &&
          column + static_cast<int64_t>(kColumns) <= job.width) {
        const uint8_t* const first = job.from + row * row_bytes + column * job.channels;
        write_pixel([&](int64_t i, int64_t k) { return first + i * row_bytes + k * job.channels; });
      } else {
        write_pixel([&](int64_t i, int64_t k) {
          return job.from + std::clamp<int64_t>(row + i, 0, job.height - 1) * row_bytes +
                 std::clamp<int64_t>(column + k, 0, job.width - 1) * job.channels;
        });
      }
    }
  }
}

/// Shears and moves along one axis keep the other's places as they are.
template <size_t kCount, class T>
void interpolate_along_axes(const Interpolation2d& job) {
  const auto& m = job.matrix;
  if (m[3] == 0 && m[4] == 1 && m[5] == 0) {
    interpolate_image<1, kCount, T>(job);
  } else if (m[0] == 1 && m[1] == 0 && m[2] == 0) {
    interpolate_image<kCount, 1, T>(job);
  } else {
    interpolate_image<kCount, kCount, T>(job);
  }
}

}  // namespace

void interpolate_bilinear(const Interpolation2d& job) {
  const auto kernel = job.channels == 3 ? interpolate_along_axes<2, Pixel> : interpolate_along_axes<2, double>;
  kernel(job);
}

void interpolate_bicubic(const Interpolation2d& job) {
  const auto kernel = job.channels == 3 ? interpolate_along_axes<4, Pixel> : interpolate_along_axes<4, double>;
  kernel(job);
}

}  // namespace norma::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::data {

HWY_EXPORT(interpolate_bilinear);
void interpolate_bilinear(const Interpolation2d& job) {
  NORMA_SIMD_BEST(interpolate_bilinear)(job);
}

HWY_EXPORT(interpolate_bicubic);
void interpolate_bicubic(const Interpolation2d& job) {
  NORMA_SIMD_BEST(interpolate_bicubic)(job);
}

}  // namespace norma::data
#endif
