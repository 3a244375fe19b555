#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/resize_kernels.cpp"
#include "core/simd/foreach_target.h"

#include "data/resize_kernels.h"

#include "core/simd/targets.h"

#include <hwy/highway.h>

#include <algorithm>
#include <array>

HWY_BEFORE_NAMESPACE();
namespace norma::data::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kHalf = 1 << (kResizeFractionBits - 1);

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kResizeFractionBits, 0, 255));
}

// Rows of color pixels. Processors multiply 16 bits by 16 and add neighbours in one instruction, twice as fast as 32
// bits by 32. So a weight is split into high * 2^11 + low, and their two sums are added up at the end, to the same
// number. Neighbours in a register are the same channel of two pixels: r0 r1 g0 g1 b0 b1 0 0.

constexpr int kLowBits = 11;
constexpr int64_t kTaps = 4;          // pixels read at once, 12 bytes
constexpr int64_t kPairNumbers = 16;  // numbers of two weights: the high halves for each channel, then the low ones

using Bytes = hn::CappedTag<uint8_t, 32>;
using Shorts = hn::RebindToSigned<hn::RepartitionToWide<Bytes>>;
using Ints = hn::RepartitionToWide<Shorts>;
using Sum = hn::Vec<hn::CappedTag<int32_t, 4>>;
/// True iff the high and low halves fit in one register.
constexpr bool kTogether = hn::MaxLanes(Shorts{}) == kPairNumbers;

/// The weights of all windows: kPairNumbers for each two weights, filled up with weights of 0 to a multiple of kTaps.
class PackedWindows {
 public:
  explicit PackedWindows(const std::vector<ResizeWindow>& windows) {
    int64_t pairs = 0;
    for (const ResizeWindow& window : windows) {
      const int64_t groups = (static_cast<int64_t>(window.weights.size()) + kTaps - 1) / kTaps;
      starts_.push_back({window.first, groups});
      pairs += groups * kTaps / 2;
    }
    numbers_.resize(static_cast<size_t>(pairs * kPairNumbers));
    int16_t* to = numbers_.data();
    for (size_t i = 0; i < windows.size(); ++i) {
      const std::vector<int32_t>& weights = windows[i].weights;
      for (size_t k = 0; k < static_cast<size_t>(starts_[i].groups * kTaps); ++k) {
        const int32_t weight = k < weights.size() ? weights[k] : 0;
        const size_t second = k % 2;
        for (size_t channel = 0; channel < 4; ++channel) {
          to[2 * channel + second] = static_cast<int16_t>(weight >> kLowBits);
          to[kPairNumbers / 2 + 2 * channel + second] = static_cast<int16_t>(weight & ((1 << kLowBits) - 1));
        }
        to += second == 1 ? kPairNumbers : 0;
      }
    }
  }

  struct Start {
    int64_t first;
    int64_t groups;  ///< of kTaps weights
  };
  [[nodiscard]] const std::vector<Start>& starts() const { return starts_; }
  [[nodiscard]] const int16_t* numbers() const { return numbers_.data(); }

 private:
  std::vector<Start> starts_;
  std::vector<int16_t> numbers_;
};

/// The bytes of four pixels to put side by side as 16 bits, for the first two and the last two; 0x80 gives 0.
alignas(16) constexpr std::array<uint8_t, 16> kFirstTwo = {0, 0x80, 3, 0x80, 1,    0x80, 4,    0x80,
                                                           2, 0x80, 5, 0x80, 0x80, 0x80, 0x80, 0x80};
alignas(16) constexpr std::array<uint8_t, 16> kLastTwo = {6, 0x80, 9,  0x80, 7,    0x80, 10,   0x80,
                                                          8, 0x80, 11, 0x80, 0x80, 0x80, 0x80, 0x80};

/// Adds the sums of the high and the low halves; if kTogether, both are in `high`.
template <class V>
HWY_INLINE Sum put_together(V high, V low) {
  constexpr hn::CappedTag<int32_t, 4> tag;
  if constexpr (kTogether) {
    return hn::Add(hn::ShiftLeft<kLowBits>(hn::LowerHalf(tag, high)), hn::UpperHalf(tag, high));
  } else {
    return hn::Add(hn::ShiftLeft<kLowBits>(high), low);
  }
}

/// The sum over a window, for three channels; moves `numbers` on.
HWY_INLINE Sum sum_of(const uint8_t* from, int64_t groups, const int16_t*& numbers) {
  constexpr Bytes bytes;
  constexpr Shorts shorts;
  constexpr Ints ints;
  const auto first_two = hn::LoadDup128(bytes, kFirstTwo.data());
  const auto last_two = hn::LoadDup128(bytes, kLastTwo.data());
  // Highway adds the products to two sums; RearrangeToOddPlusEven() brings their parts together.
  auto high = hn::Zero(ints);
  auto high_rest = hn::Zero(ints);
  [[maybe_unused]] auto low = hn::Zero(ints);
  [[maybe_unused]] auto low_rest = hn::Zero(ints);
  for (int64_t group = 0; group < groups; ++group, from += 3 * kTaps) {
    const auto pixels = hn::LoadDup128(bytes, from);
    for (const auto& order : {first_two, last_two}) {
      const auto two = hn::BitCast(shorts, hn::TableLookupBytesOr0(pixels, order));
      high = hn::ReorderWidenMulAccumulate(ints, two, hn::LoadU(shorts, numbers), high, high_rest);
      if constexpr (!kTogether) {
        low = hn::ReorderWidenMulAccumulate(ints, two, hn::LoadU(shorts, numbers + kPairNumbers / 2), low, low_rest);
      }
      numbers += kPairNumbers;
    }
  }
  return put_together(hn::RearrangeToOddPlusEven(high, high_rest), hn::RearrangeToOddPlusEven(low, low_rest));
}

void resize_color_rows(const PixelRows& rows, const std::vector<ResizeWindow>& windows, uint8_t* to) {
  constexpr hn::CappedTag<int32_t, 4> ints;
  constexpr hn::Rebind<uint8_t, decltype(ints)> bytes;
  const PackedWindows packed(windows);
  for (int64_t y = 0; y < rows.count; ++y) {
    const uint8_t* from = rows.pixels + y * rows.bytes;
    const int16_t* numbers = packed.numbers();
    for (const auto& [first, groups] : packed.starts()) {
      const Sum sum = sum_of(from + 3 * first, groups, numbers);
      const auto pixel = hn::DemoteTo(bytes, hn::ShiftRight<kResizeFractionBits>(hn::Add(sum, hn::Set(ints, kHalf))));
      hn::StoreU(pixel, bytes, to);  // a fourth byte is written; the next pixel overwrites it
      to += 3;
    }
  }
}

void resize_grey_rows(const PixelRows& rows, const std::vector<ResizeWindow>& windows, uint8_t* to) {
  for (int64_t y = 0; y < rows.count; ++y) {
    for (const ResizeWindow& window : windows) {
      const uint8_t* from = rows.pixels + y * rows.bytes + window.first;
      int32_t sum = kHalf;
      for (const int32_t weight : window.weights) {
        sum += weight * *from++;
      }
      *to++ = rounded(sum);
    }
  }
}

}  // namespace

void resize_rows(const PixelRows& rows, const std::vector<ResizeWindow>& windows, uint8_t* to) {
  if (rows.channels == 3) {
    resize_color_rows(rows, windows, to);
  } else {
    resize_grey_rows(rows, windows, to);
  }
}

void resize_columns(const PixelRows& rows, int64_t begin, const std::vector<ResizeWindow>& windows, uint8_t* to) {
  constexpr hn::ScalableTag<int32_t> ints;
  constexpr hn::Rebind<uint8_t, decltype(ints)> bytes;
  constexpr auto lanes = static_cast<int64_t>(hn::MaxLanes(ints));
  for (const ResizeWindow& window : windows) {
    const uint8_t* top = rows.pixels + (window.first - begin) * rows.bytes;
    int64_t x = 0;
    for (; x + 2 * lanes <= rows.bytes; x += 2 * lanes) {
      auto first = hn::Set(ints, kHalf);
      auto second = first;
      const uint8_t* from = top + x;
      for (const int32_t weight : window.weights) {
        const auto times = hn::Set(ints, weight);
        first = hn::Add(first, hn::Mul(times, hn::PromoteTo(ints, hn::LoadU(bytes, from))));
        second = hn::Add(second, hn::Mul(times, hn::PromoteTo(ints, hn::LoadU(bytes, from + lanes))));
        from += rows.bytes;
      }
      hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kResizeFractionBits>(first)), bytes, to + x);
      hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<kResizeFractionBits>(second)), bytes, to + x + lanes);
    }
    for (; x < rows.bytes; ++x) {
      int32_t sum = kHalf;
      const uint8_t* from = top + x;
      for (const int32_t weight : window.weights) {
        sum += weight * *from;
        from += rows.bytes;
      }
      to[x] = rounded(sum);
    }
    to += rows.bytes;
  }
}

}  // namespace norma::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::data {

HWY_EXPORT(resize_rows);
void resize_rows(const PixelRows& rows, const std::vector<ResizeWindow>& windows, uint8_t* to) {
  NORMA_SIMD_BEST(resize_rows)(rows, windows, to);
}

HWY_EXPORT(resize_columns);
void resize_columns(const PixelRows& rows, int64_t begin, const std::vector<ResizeWindow>& windows, uint8_t* to) {
  NORMA_SIMD_BEST(resize_columns)(rows, begin, windows, to);
}

}  // namespace norma::data
#endif
