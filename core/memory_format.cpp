#include "core/memory_format.h"

#include "base/error.h"

#include <algorithm>
#include <ranges>

namespace norma {
namespace {

// Axes of (N, C, H, W) from fastest to slowest in channels_last.
constexpr int64_t kChannelsLastOrder[] = {1, 3, 2, 0};

/// The place of axis a with respect to axis b; `unknown` when no operand tells.
enum class Order { inside, outside, unknown };

Order compare_axes(const Sizes& sizes, std::span<const Strides> strides, int64_t a, int64_t b) {
  for (const Strides& s : strides) {
    if (s[a] == 0 || s[b] == 0) {
      continue;  // broadcast along one of them
    }
    if (s[a] != s[b]) {
      return s[a] < s[b] ? Order::inside : Order::outside;
    }
    if (sizes[a] > sizes[b]) {  // equal strides: one of the axes has size 1 and stands inside
      return Order::outside;
    }
  }
  return Order::unknown;
}

/// Axes from the innermost to the outermost.
Axes axis_order(const Sizes& sizes, std::span<const Strides> strides) {
  const int64_t rank = sizes.size();
  Axes order;
  for (int64_t axis = rank - 1; axis >= 0; --axis) {
    order.push_back(axis);
  }
  // Insertion sort, since the comparison may not know: an axis moves inwards past those it cannot be compared with
  // only when a later one says that it belongs inside.
  for (int64_t i = 1; i < rank; ++i) {
    int64_t place = i;
    for (int64_t j = i - 1; j >= 0; --j) {
      const Order found = compare_axes(sizes, strides, order[j], order[place]);
      if (found == Order::outside) {
        std::swap(order[j], order[place]);
        place = j;
      } else if (found == Order::inside) {
        break;
      }
    }
  }
  return order;
}

}  // namespace

std::string_view to_string(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::contiguous: return "contiguous";
    case MemoryFormat::channels_last: return "channels_last";
    case MemoryFormat::preserve: return "preserve";
  }
  return "unknown";
}

namespace {

/// True iff the strides have no gaps in this order of axes. That of an axis of size 1 does not count.
template <class AxisOrder>
bool is_dense_in(const AxisOrder& order, const Sizes& sizes, const Strides& strides) {
  int64_t expected = 1;
  for (const int64_t axis : order) {
    if (sizes[axis] != 1) {
      if (strides[axis] != expected) {
        return false;
      }
      expected *= sizes[axis];
    }
  }
  return true;
}

}  // namespace

bool same_places(const Sizes& sizes, const Strides& a, const Strides& b) {
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] != 1 && a[axis] != b[axis]) {
      return false;
    }
  }
  return true;
}

Strides dense_strides(std::string_view op, const Sizes& sizes, std::span<const int64_t> order) {
  Strides strides = Strides::filled(sizes.size(), 1);
  int64_t step = 1;
  for (const int64_t axis : order) {
    strides[axis] = step;
    step = checked_mul(op, "sizes", step, std::max<int64_t>(sizes[axis], 1));
  }
  return strides;
}

Strides contiguous_strides(const Sizes& sizes) {
  Strides strides = Strides::filled(sizes.size(), 1);
  for (int64_t axis = sizes.size() - 2; axis >= 0; --axis) {
    strides[axis] = checked_mul("contiguous", "sizes", strides[axis + 1], std::max<int64_t>(sizes[axis + 1], 1));
  }
  return strides;
}

Strides channels_last_strides(const Sizes& sizes) {
  check(sizes.size() == 4, "channels_last", "expected rank 4, got rank {} (sizes {})", sizes.size(), sizes);
  return dense_strides("channels_last", sizes, kChannelsLastOrder);
}

Strides strides_for(const Sizes& sizes, MemoryFormat format) {
  check(format != MemoryFormat::preserve, "memory_format", "expected contiguous or channels_last, got preserve");
  return format == MemoryFormat::channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes);
}

int64_t reach(const Sizes& sizes, const Strides& strides) {
  if (sizes.numel() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    last = checked_add("reach", "strides", last, checked_mul("reach", "strides", sizes[axis] - 1, strides[axis]));
  }
  return checked_add("reach", "strides", last, 1);
}

bool is_contiguous(const Sizes& sizes, const Strides& strides) {
  return sizes.numel() == 0 ||
         is_dense_in(std::views::iota(int64_t{0}, sizes.size()) | std::views::reverse, sizes, strides);
}

bool is_channels_last_contiguous(const Sizes& sizes, const Strides& strides) {
  return sizes.size() == 4 && is_dense_in(kChannelsLastOrder, sizes, strides);
}

bool is_channels_last_strides(const Sizes& sizes, const Strides& strides) {
  if (sizes.size() != 4 || strides[1] == 0) {
    return false;
  }
  int64_t least = 0;
  for (const int64_t axis : kChannelsLastOrder) {
    if (sizes[axis] == 0 || strides[axis] < least) {
      return false;
    }
    // N111 and N11W: the stride of N equals that of C, so both formats fit and contiguous is the default.
    if (axis == 0 && least == strides[1]) {
      return false;
    }
    least = strides[axis];
    if (sizes[axis] > 1) {
      least *= sizes[axis];
    }
  }
  return true;
}

MemoryFormat suggest_memory_format(const Sizes& sizes, const Strides& strides) {
  return is_channels_last_strides(sizes, strides) ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

bool is_non_overlapping_and_dense(const Sizes& sizes, const Strides& strides) {
  if (sizes.numel() == 0) {
    return true;
  }
  Axes order;
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] != 1) {
      order.push_back(axis);
    }
  }
  order.sort([&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  return is_dense_in(order, sizes, strides);
}

Strides ordered_strides(const Sizes& sizes, std::span<const Strides> strides) {
  const Axes order = axis_order(sizes, strides);
  return dense_strides("strides", sizes, std::span(order.begin(), order.end()));
}

Strides preserved_strides(const Sizes& sizes, const Strides& strides) {
  if (sizes.numel() == 0) {
    return strides_for(sizes, suggest_memory_format(sizes, strides));
  }
  return is_non_overlapping_and_dense(sizes, strides) ? strides : ordered_strides(sizes, {&strides, 1});
}

}  // namespace norma
