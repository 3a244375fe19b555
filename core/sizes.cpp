#include "core/sizes.h"

#include "base/error.h"

#include <fmt/format.h>

#include <limits>

namespace norma {

Sizes::Sizes(std::span<const int64_t> values) {
  check(static_cast<int64_t>(values.size()) <= kMaxRank, "sizes", "expected at most {} axes, got {}", kMaxRank,
        values.size());
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = static_cast<int64_t>(values.size());
}

Sizes Sizes::filled(int64_t count, int64_t value) {
  check(count <= kMaxRank, "sizes", "expected at most {} axes, got {}", kMaxRank, count);
  Sizes sizes;
  std::fill_n(sizes.values_.begin(), count, value);
  sizes.size_ = count;
  return sizes;
}

void Sizes::push_back(int64_t value) {
  insert(size_, value);
}

void Sizes::insert(int64_t position, int64_t value) {
  check(size_ < kMaxRank, "sizes", "expected at most {} axes, got {}", kMaxRank, size_ + 1);
  std::copy_backward(begin() + position, end(), end() + 1);
  values_[static_cast<size_t>(position)] = value;
  ++size_;
}

void Sizes::erase(int64_t position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  --size_;
}

Sizes Sizes::without(int64_t position) const {
  Sizes rest = *this;
  rest.erase(position);
  return rest;
}

namespace {

[[noreturn]] void fail_too_many(std::string_view op, const std::string& got) {
  fail(op, "expected at most {} elements, got {}", std::numeric_limits<int64_t>::max(), got);
}

/// The product of the sizes in `product`; false when it does not fit.
bool multiply(const Sizes& sizes, int64_t& product) {
  bool fits = true;
  bool empty = false;
  product = 1;
  for (const int64_t size : sizes) {
    empty = empty || size == 0;
    fits = !__builtin_mul_overflow(product, size == 0 ? 1 : size, &product) && fits;
  }
  product = empty ? 0 : product;
  return fits;
}

}  // namespace

int64_t Sizes::numel() const {
  int64_t product = 0;
  if (!multiply(*this, product)) [[unlikely]] {
    fail_too_many("sizes", to_string(*this));
  }
  return product;
}

int64_t checked_numel(std::string_view op, const Sizes& sizes) {
  int64_t product = 0;
  if (!multiply(sizes, product)) [[unlikely]] {
    fail_too_many(fmt::format("{}: sizes", op), to_string(sizes));
  }
  return product;
}

int64_t checked_add(std::string_view op, std::string_view argument, int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) [[unlikely]] {
    fail_too_many(fmt::format("{}: {}", op, argument), fmt::format("{} + {}", a, b));
  }
  return sum;
}

int64_t checked_mul(std::string_view op, std::string_view argument, int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) [[unlikely]] {
    fail_too_many(fmt::format("{}: {}", op, argument), fmt::format("{} * {}", a, b));
  }
  return product;
}

std::string to_string(const Sizes& sizes) {
  std::string text = "[";
  for (int64_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  return text + "]";
}

Axes axes_from(int64_t first, int64_t last) {
  Axes axes;
  for (int64_t axis = first; axis < last; ++axis) {
    axes.push_back(axis);
  }
  return axes;
}

int64_t normalize_axis(std::string_view op, int64_t axis, int64_t rank) {
  check(axis >= -rank && axis < rank, op, "axis: expected a value in [{}, {}), got {}", -rank, rank, axis);
  return axis < 0 ? axis + rank : axis;
}

Axes normalize_axes(std::string_view op, const Axes& axes, int64_t rank) {
  if (axes.empty()) {
    return axes_from(0, rank);
  }
  Axes result;
  for (const int64_t axis : axes) {
    // As in PyTorch, a number counts as one along an axis that it does not have.
    const int64_t normalized = normalize_axis(op, axis, std::max(rank, int64_t{1}));
    check(!result.contains(normalized), op, "axes: expected each axis once, got {}", axes);
    result.push_back(normalized);
  }
  result.sort();
  return rank == 0 ? Axes() : result;
}

Sizes broadcast_sizes(std::string_view op, const Sizes& a, const Sizes& b) {
  const int64_t rank = std::max(a.size(), b.size());
  Sizes result = Sizes::filled(rank, 1);
  for (int64_t i = 1; i <= rank; ++i) {  // from the last axis
    const int64_t size_a = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t size_b = i <= b.size() ? b[b.size() - i] : 1;
    check(size_a == size_b || size_a == 1 || size_b == 1, op, "expected sizes that broadcast, got {} and {}", a, b);
    result[rank - i] = size_a == 1 ? size_b : size_a;
  }
  checked_numel(op, result);
  return result;
}

Strides broadcast_strides(const Sizes& sizes, const Strides& strides, const Sizes& target) {
  Strides result = Strides::filled(target.size(), 0);
  const int64_t added = target.size() - sizes.size();
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] != 1 || target[axis + added] == 1) {
      result[axis + added] = strides[axis];
    }
  }
  return result;
}

}  // namespace norma

fmt::format_context::iterator fmt::formatter<norma::Sizes>::format(const norma::Sizes& sizes,
                                                                   fmt::format_context& context) const {
  return fmt::formatter<fmt::string_view>::format(norma::to_string(sizes), context);
}
