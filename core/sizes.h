#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace norma {

/// a / b, rounded up.
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// The most axes a tensor may have.
inline constexpr int64_t kMaxRank = 8;

/// A short list of integers without heap memory: sizes, strides or axes of a tensor.
/// Throws Error when it would exceed kMaxRank entries.
class Sizes {
 public:
  Sizes() = default;
  Sizes(std::initializer_list<int64_t> values) : Sizes(std::span(values.begin(), values.size())) {}
  explicit Sizes(std::span<const int64_t> values);
  /// `count` entries equal to `value`.
  static Sizes filled(int64_t count, int64_t value);

  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  int64_t& operator[](int64_t i) { return values_[static_cast<size_t>(i)]; }
  int64_t operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + size_; }
  [[nodiscard]] const int64_t* begin() const { return values_.data(); }
  [[nodiscard]] const int64_t* end() const { return values_.data() + size_; }
  [[nodiscard]] int64_t back() const { return values_[static_cast<size_t>(size_ - 1)]; }

  void push_back(int64_t value);
  void insert(int64_t position, int64_t value);
  void erase(int64_t position);
  /// The other entries.
  [[nodiscard]] Sizes without(int64_t position) const;

  /// Sorts the entries by insertion; equal ones keep their order. GCC 14 warns of the larger steps that std::sort would
  /// make.
  template <class Less = std::less<>>
  void sort(Less less = {}) {
    for (int64_t* end = begin(); end < this->end(); ++end) {
      for (int64_t* at = end; at > begin() && less(*at, at[-1]); --at) {
        std::swap(*at, at[-1]);
      }
    }
  }

  [[nodiscard]] bool contains(int64_t value) const { return std::find(begin(), end(), value) != end(); }
  /// The product of all entries; 1 when there is none. Throws Error when it does not fit, as checked_numel() does.
  [[nodiscard]] int64_t numel() const;

  friend bool operator==(const Sizes& a, const Sizes& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  std::array<int64_t, kMaxRank> values_{};
  int64_t size_ = 0;
};

using Strides = Sizes;
using Axes = Sizes;

// Arithmetic on numbers that callers choose. A result that does not fit into 64 bits is an Error: "op: argument:
// expected at most 9223372036854775807 elements, got …".

/// The product of the sizes, shown in the Error as "[8589934592, 8589934592]". An axis of size 0 makes it 0 but counts
/// as 1 in the check, so that strides and products of some of the sizes always fit, too.
int64_t checked_numel(std::string_view op, const Sizes& sizes);
/// a + b, shown in the Error as "1 + 2".
int64_t checked_add(std::string_view op, std::string_view argument, int64_t a, int64_t b);
/// a · b, shown in the Error as "1 * 2".
int64_t checked_mul(std::string_view op, std::string_view argument, int64_t a, int64_t b);

/// "[2, 3, 4]"
std::string to_string(const Sizes& sizes);

/// first, first + 1, … , last - 1
Axes axes_from(int64_t first, int64_t last);

/// `axis` as a number in [0, rank). Negative axes count from the end.
/// Throws Error "op: axis: expected a value in [-rank, rank), got …".
int64_t normalize_axis(std::string_view op, int64_t axis, int64_t rank);

/// The `axes` normalized and sorted; an axis named twice is an Error. Empty `axes` mean every axis.
Axes normalize_axes(std::string_view op, const Axes& axes, int64_t rank);

/// The size two operands broadcast to, by NumPy's rule. Throws Error that names `op` and both sizes, also when the
/// number of elements does not fit.
Sizes broadcast_sizes(std::string_view op, const Sizes& a, const Sizes& b);

/// Strides of an operand of `sizes` seen as one of `target` sizes: 0 along axes it is broadcast over.
/// The sizes must broadcast to `target`.
Strides broadcast_strides(const Sizes& sizes, const Strides& strides, const Sizes& target);

}  // namespace norma

/// As to_string(). An error's text has Sizes themselves, so that nothing is written in a call without an error. Its
/// base is one that fmt/core.h has whole: that of std::string stands in fmt/format.h.
template <>
struct fmt::formatter<norma::Sizes> : fmt::formatter<fmt::string_view> {
  fmt::format_context::iterator format(const norma::Sizes& sizes, fmt::format_context& context) const;
};
