#pragma once

#include "base/error.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace norma {

/// The values that a number may have. NaN is in no range.
template <class T>
struct Range {
  T low{};
  T high{};
  bool with_low = true;   ///< whether `low` itself belongs to it
  bool with_high = true;  ///< likewise

  [[nodiscard]] constexpr bool contains(T value) const {
    return (with_low ? value >= low : value > low) && (with_high ? value <= high : value < high);
  }
};

/// "a whole number from 1 to 1024", "a number from 0 to 1", "a number in (0, 1]"
template <class T>
std::string to_string(const Range<T>& range) {
  const std::string_view kind = std::is_integral_v<T> ? "a whole number" : "a number";
  if (range.with_low && range.with_high) {
    return fmt::format("{} from {} to {}", kind, range.low, range.high);
  }
  return fmt::format("{} in {}{}, {}{}", kind, range.with_low ? '[' : '(', range.low, range.high,
                     range.with_high ? ']' : ')');
}

/// Throws Error "op: name: expected …, got …" unless the value is in the range.
template <class T>
void check_range(std::string_view op, std::string_view name, std::type_identity_t<T> value, const Range<T>& range) {
  check(range.contains(value), op, "{}: expected {}, got {}", name, to_string(range), value);
}

}  // namespace norma
