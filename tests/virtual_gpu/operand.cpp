#include "virtual_gpu/operand.h"

#include "virtual_gpu/device.h"
#include "virtual_gpu/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

namespace virtual_gpu {

namespace {

/// The allocation that holds all these bytes.
Allocation& allocation_of(const std::string& name, uint64_t address, uint64_t bytes) {
  Memory& memory = device_memory();
  Allocation* const found = memory.find(address);
  if (found == nullptr) {
    throw Fault(Fault::Kind::kIllegalAddress,
                fmt::format("{}: expected {} bytes of the device's memory at 0x{:x}, got {}", name, bytes, address,
                            memory.describe(address)));
  }
  if (address + bytes > found->end()) {
    throw Fault(Fault::Kind::kIllegalAddress,
                fmt::format("{}: expected {} bytes at 0x{:x} inside one allocation, got {} of them: {}", name, bytes,
                            address, found->end() - address, found->note));
  }
  return *found;
}

/// Calls row(offset, stride, count) for each row of the last axis, with the offset of its first element.
void for_each_row(const Operand& operand, const std::function<void(int64_t, int64_t, int64_t)>& row) {
  const size_t axes = operand.sizes.size();
  std::vector<int64_t> index(axes, 0);
  const int64_t count = operand.sizes.back();
  const int64_t rows = count == 0 ? 0 : operand.elements() / count;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t offset = 0;
    for (size_t axis = 0; axis + 1 < axes; ++axis) {
      offset += index[axis] * operand.strides[axis];
    }
    row(offset, operand.strides.back(), count);
    for (size_t axis = axes - 1; axis-- > 0;) {
      if (++index[axis] < operand.sizes[axis]) {
        break;
      }
      index[axis] = 0;
    }
  }
}

/// One flag for each element between the first and the last: whether it is one of the operand's.
std::vector<uint8_t> used_elements(const Operand& operand) {
  std::vector<uint8_t> used(operand.span_bytes() / static_cast<uint64_t>(bytes_of(operand.type)), 0);
  for_each_row(operand, [&](int64_t offset, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      used[static_cast<size_t>(offset + i * stride)] = 1;
    }
  });
  return used;
}

}  // namespace

int64_t Operand::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

uint64_t Operand::span_bytes() const {
  if (elements() == 0) {
    return 0;
  }
  int64_t last = 0;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    last += (sizes[axis] - 1) * strides[axis];
  }
  return static_cast<uint64_t>((last + 1) * bytes_of(type));
}

bool Operand::overlaps_itself() const {
  // Axes in the order of their strides: each must step over all that the ones before it reach.
  std::vector<size_t> axes(sizes.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  std::sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t reach = 0;
  for (const size_t axis : axes) {
    if (sizes[axis] > 1 && strides[axis] <= reach) {
      // Strides that interleave may still miss each other, so the elements are counted.
      const std::vector<uint8_t> used = used_elements(*this);
      return std::count(used.begin(), used.end(), 1) != elements();
    }
    reach += (sizes[axis] - 1) * strides[axis];
  }
  return false;
}

bool overlap(const Operand& one, const Operand& other) {
  if (one.address + one.span_bytes() <= other.address || other.address + other.span_bytes() <= one.address) {
    return false;
  }
  const std::vector<uint8_t> used = used_elements(one);
  const int64_t width = bytes_of(one.type);
  bool found = false;
  for_each_row(other, [&](int64_t offset, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count && !found; ++i) {
      const auto begin =
          static_cast<int64_t>(other.address - one.address) + (offset + i * stride) * bytes_of(other.type);
      for (int64_t byte = begin; byte < begin + bytes_of(other.type); ++byte) {
        const bool inside = byte >= 0 && byte / width < static_cast<int64_t>(used.size());
        found = found || (inside && used[static_cast<size_t>(byte / width)] != 0);
      }
    }
  });
  return found;
}

std::vector<double> read(const Operand& operand) {
  std::vector<double> values;
  if (operand.elements() == 0) {
    return values;
  }
  const Allocation& allocation = allocation_of(operand.name, operand.address, operand.span_bytes());
  const auto begin = static_cast<int64_t>(operand.address - allocation.begin);
  const int64_t width = bytes_of(operand.type);
  values.reserve(static_cast<size_t>(operand.elements()));
  for_each_row(operand, [&](int64_t offset, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t byte = begin + (offset + i * stride) * width;
      const auto written = allocation.written.begin() + byte;
      if (std::find(written, written + width, 0) != written + width) {
        throw Fault(Fault::Kind::kUninitialized,
                    fmt::format("{}: read of what was never written: element {} of {}, at 0x{:x}: {}", operand.name,
                                values.size(), text_of(operand.sizes), allocation.begin + static_cast<uint64_t>(byte),
                                allocation.note));
      }
      values.push_back(load(operand.type, allocation.data + byte));
    }
  });
  return values;
}

void write(const Operand& operand, const std::vector<double>& values) {
  if (operand.elements() == 0) {
    return;
  }
  Allocation& allocation = allocation_of(operand.name, operand.address, operand.span_bytes());
  const auto begin = static_cast<int64_t>(operand.address - allocation.begin);
  const int64_t width = bytes_of(operand.type);
  size_t next = 0;
  for_each_row(operand, [&](int64_t offset, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t byte = begin + (offset + i * stride) * width;
      store(operand.type, allocation.data + byte, values[next++]);
      std::fill_n(allocation.written.begin() + byte, width, uint8_t{1});
    }
  });
}

std::vector<std::byte> read_bytes(const std::string& name, uint64_t address, uint64_t bytes) {
  const Allocation& allocation = allocation_of(name, address, bytes);
  const uint64_t begin = address - allocation.begin;
  const auto written = allocation.written.subspan(begin, bytes);
  const auto first = std::find(written.begin(), written.end(), 0);
  if (first != written.end()) {
    throw Fault(Fault::Kind::kUninitialized,
                fmt::format("{}: read of what was never written: byte {} of {}, at 0x{:x}: {}", name,
                            first - written.begin(), bytes, address, allocation.note));
  }
  return {allocation.data + begin, allocation.data + begin + bytes};
}

void write_bytes(const std::string& name, uint64_t address, std::span<const std::byte> bytes) {
  Allocation& allocation = allocation_of(name, address, bytes.size());
  const uint64_t begin = address - allocation.begin;
  std::copy(bytes.begin(), bytes.end(), allocation.data + begin);
  std::ranges::fill(allocation.written.subspan(begin, bytes.size()), uint8_t{1});
}

void poison(const std::string& name, uint64_t address, uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  Allocation& allocation = allocation_of(name, address, bytes);
  constexpr int kNoise = 0xFF;  // NaN in every type
  std::memset(allocation.data + (address - allocation.begin), kNoise, bytes);
  std::fill_n(allocation.written.begin() + static_cast<std::ptrdiff_t>(address - allocation.begin), bytes, uint8_t{0});
}

std::string text_of(const std::vector<int64_t>& sizes) {
  return fmt::format("({})", fmt::join(sizes, ", "));
}

}  // namespace virtual_gpu
