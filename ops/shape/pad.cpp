#include "ops/shape/pad.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <limits>

namespace norma {

namespace {

/// size + before + after, where the last two may be negative; less than 0 when they crop too much.
int64_t padded_size(int64_t size, int64_t before, int64_t after) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();  // has no opposite
  const int64_t least = std::min(before, after);
  const int64_t most = std::max(before, after);
  if (least == kLeast || (most < 0 && least < -size - most)) {
    return -1;
  }
  return checked_add("pad", "before, after", checked_add("pad", "before, after", size, least), most);
}

/// The sizes of the result. Throws Error for impossible ones.
Sizes padded_sizes(const Tensor& x, const Sizes& before, const Sizes& after) {
  check_defined("pad", "x", x);
  check(before.size() == x.rank(), "pad", "before: expected {} numbers, one per axis, got {}", x.rank(), before);
  check(after.size() == x.rank(), "pad", "after: expected {} numbers, one per axis, got {}", x.rank(), after);
  Sizes sizes = x.sizes();
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    const int64_t size = x.size(axis);
    sizes[axis] = padded_size(size, before[axis], after[axis]);
    check(sizes[axis] >= 0, "pad", "before, after: expected to crop at most {} elements of axis {}, got {} and {}",
          size, axis, before[axis], after[axis]);
  }
  return sizes;
}

int64_t modulo(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest < 0 ? rest + b : rest;
}

/// The part of an axis that is left after negative numbers have cropped it.
struct Rest {
  int64_t first;
  int64_t size;
};

/// The element of the axis that stands at position `i`, counted from the axis' own first one.
int64_t source_of(PadMode mode, int64_t i, int64_t size, const Rest& rest) {
  switch (mode) {
    case PadMode::replicate: return std::clamp<int64_t>(i, 0, size - 1);
    case PadMode::reflect: return i < 0 ? -i : i < size ? i : 2 * (size - 1) - i;
    case PadMode::circular: return rest.first + modulo(i - rest.first, rest.size);
    case PadMode::constant: break;
  }
  return i;
}

void check_reach(PadMode mode, int64_t axis, int64_t before, int64_t after, int64_t size, const Rest& rest) {
  const int64_t most = std::max(before, after);
  if (most <= 0) {
    return;
  }
  switch (mode) {
    case PadMode::reflect:
      check(most < size, "pad",
            "before, after: expected less than the {} elements of axis {} to reflect, got {} and {}", size, axis,
            before, after);
      break;
    case PadMode::circular:
      check(most <= rest.size, "pad", "before, after: expected at most the {} elements of axis {}, got {} and {}",
            std::max<int64_t>(rest.size, 0), axis, before, after);
      break;
    case PadMode::replicate:
      check(size > 0, "pad", "x: expected an element to repeat along axis {}, got size 0", axis);
      break;
    case PadMode::constant: break;
  }
}

/// Copies the part of x that padding leaves to its place in y.
void copy_part_that_stays(const Tensor& x, const Sizes& before, const Sizes& after, const Tensor& y) {
  Tensor from = x;
  Tensor to = y;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    const int64_t start = std::max<int64_t>(-before[axis], 0);
    const int64_t end = x.size(axis) - std::max<int64_t>(-after[axis], 0);
    if (end <= start) {
      return;
    }
    from = part_of(from, axis, start, end - start);
    to = part_of(to, axis, std::max<int64_t>(before[axis], 0), end - start);
  }
  copy_into(from, to);
}

}  // namespace

Tensor pad(const Tensor& x, const Sizes& before, const Sizes& after, double value) {
  Op op("pad");
  const Sizes sizes = padded_sizes(x, before, after);
  const MemoryFormat format = x.suggest_memory_format();
  const Tensor y = full(sizes, value, {.dtype = x.dtype(), .device = x.device(), .format = format});
  copy_part_that_stays(x, before, after, y);
  op.describe({{"before", before}, {"after", after}, {"value", value}});
  return op.record({x}, y, {}, [before, after](const Tensor& dy, const BackwardContext&) {
    Sizes minus_before = before;
    Sizes minus_after = after;
    for (int64_t axis = 0; axis < before.size(); ++axis) {
      minus_before[axis] = -before[axis];
      minus_after[axis] = -after[axis];
    }
    return Tensors{pad(dy, minus_before, minus_after)};
  });
}

Tensor pad(const Tensor& x, const Sizes& before, const Sizes& after, PadMode mode) {
  if (mode == PadMode::constant) {
    return pad(x, before, after);
  }
  const Sizes padded = padded_sizes(x, before, after);
  checked_numel("pad", padded);
  Tensor y = x;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (before[axis] == 0 && after[axis] == 0) {
      continue;
    }
    const int64_t size = x.size(axis);
    const int64_t first = std::max<int64_t>(-before[axis], 0);
    const Rest rest{.first = first, .size = size - first + std::min<int64_t>(after[axis], 0)};
    check_reach(mode, axis, before[axis], after[axis], size, rest);
    // Made first, since it refuses a size that does not fit, with a text of its own.
    const Tensor index = empty({padded[axis]}, {.dtype = DType::int64, .device = x.device()});
    std::vector<int64_t> sources(static_cast<size_t>(padded[axis]));
    for (int64_t i = 0; i < padded[axis]; ++i) {
      sources[static_cast<size_t>(i)] = source_of(mode, i - before[axis], size, rest);
    }
    copy_into(from_vector(sources, {padded[axis]}, {.dtype = DType::int64, .device = kCpu}), index);
    y = index_select(y, axis, index);
  }
  return y.storage() == x.storage() ? clone(x) : y;
}

}  // namespace norma
