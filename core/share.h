#pragma once

#include <algorithm>
#include <cstdint>

namespace norma {

/// The items that one of several takers has: those from `first` on.
struct Share {
  int64_t first = 0;
  int64_t count = 0;
};

/// The share of taker `number` (from 0) where `takers` divide `total` items in their order. The first takers have one
/// more where they cannot have the same number.
inline Share share_of(int64_t total, int64_t number, int64_t takers) {
  const int64_t least = total / takers;
  const int64_t more = total % takers;
  return {.first = number * least + std::min(number, more), .count = least + (number < more ? 1 : 0)};
}

}  // namespace norma
