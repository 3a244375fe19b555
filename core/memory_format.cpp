#include "core/memory_format.h"

#include "core/error.h"

namespace norma {
namespace {

// Axes of (N, C, H, W) from fastest to slowest in channels_last.
constexpr int64_t kChannelsLastOrder[] = {1, 3, 2, 0};

}  // namespace

std::string_view to_string(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::contiguous: return "contiguous";
    case MemoryFormat::channels_last: return "channels_last";
    case MemoryFormat::preserve: return "preserve";
  }
  return "unknown";
}

Strides contiguous_strides(const Sizes& sizes) {
  Strides strides = Strides::filled(sizes.size(), 1);
  for (int64_t axis = sizes.size() - 2; axis >= 0; --axis) {
    strides[axis] = strides[axis + 1] * std::max<int64_t>(sizes[axis + 1], 1);
  }
  return strides;
}

Strides channels_last_strides(const Sizes& sizes) {
  check(sizes.size() == 4, "channels_last", "expected rank 4, got rank {} (sizes {})", sizes.size(), to_string(sizes));
  Strides strides = Strides::filled(4, 1);
  int64_t step = 1;
  for (const int64_t axis : kChannelsLastOrder) {
    strides[axis] = step;
    step *= std::max<int64_t>(sizes[axis], 1);
  }
  return strides;
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
    last += (sizes[axis] - 1) * strides[axis];
  }
  return last + 1;
}

bool is_contiguous(const Sizes& sizes, const Strides& strides) {
  if (sizes.numel() == 0) {
    return true;
  }
  int64_t expected = 1;
  for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
    if (sizes[axis] != 1) {
      if (strides[axis] != expected) {
        return false;
      }
      expected *= sizes[axis];
    }
  }
  return true;
}

bool is_channels_last_contiguous(const Sizes& sizes, const Strides& strides) {
  if (sizes.size() != 4) {
    return false;
  }
  int64_t expected = 1;
  for (const int64_t axis : kChannelsLastOrder) {
    if (sizes[axis] != 1) {
      if (strides[axis] != expected) {
        return false;
      }
      expected *= sizes[axis];
    }
  }
  return true;
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
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (const int64_t axis : order) {
    if (strides[axis] != expected) {
      return false;
    }
    expected *= sizes[axis];
  }
  return true;
}

Strides preserved_strides(const Sizes& sizes, const Strides& strides) {
  if (sizes.numel() > 0 && is_non_overlapping_and_dense(sizes, strides)) {
    return strides;
  }
  return strides_for(sizes, suggest_memory_format(sizes, strides));
}

}  // namespace norma
