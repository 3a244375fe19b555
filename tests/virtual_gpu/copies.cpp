#include "virtual_gpu/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace virtual_gpu {
namespace {

constexpr int kPoison = 0xA5;
constexpr double kBusBytesPerSecond = 50e9;  // of the virtual clock
constexpr double kSecondsOfCopy = 2e-6;

double seconds_over_bus(size_t bytes) {
  return kSecondsOfCopy + static_cast<double>(bytes) / kBusBytesPerSecond;
}

/// Bytes of the device's memory, for a copy that runs now.
class DeviceRange {
 public:
  DeviceRange(const Runtime& runtime, const void* address, size_t bytes)
      : allocation_(runtime.memory.find(reinterpret_cast<uint64_t>(address))), bytes_(bytes) {
    const auto at = reinterpret_cast<uint64_t>(address);
    if (allocation_ == nullptr || at + bytes > allocation_->end()) {
      throw Fault(Fault::Kind::kIllegalAddress,
                  fmt::format("a copy of {} bytes at {:#x}: {}", bytes, at, runtime.memory.describe(at)));
    }
    offset_ = at - allocation_->begin;
  }

  [[nodiscard]] std::byte* data() const { return allocation_->data + offset_; }
  [[nodiscard]] uint8_t* written() const { return allocation_->written.data() + offset_; }
  void all_written() const { std::fill_n(written(), bytes_, uint8_t{1}); }
  /// Throws Fault where a byte was never written.
  void require_written() const {
    const uint8_t* const first = std::find(written(), written() + bytes_, uint8_t{0});
    if (first != written() + bytes_) {
      throw Fault(Fault::Kind::kUninitialized,
                  fmt::format("a copy to the host of {} bytes reads byte {}, which was never written, of {}", bytes_,
                              first - written(), allocation_->note));
    }
  }

 private:
  Allocation* allocation_;
  size_t bytes_;
  uint64_t offset_ = 0;
};

/// Whether the pointer is the device's; such memory may have been freed.
bool is_of_device(const Runtime& runtime, const void* pointer) {
  return runtime.memory.find(reinterpret_cast<uint64_t>(pointer)) != nullptr;
}

void require_of_device(const Runtime& runtime, const char* argument, const void* pointer, size_t bytes) {
  const auto at = reinterpret_cast<uint64_t>(pointer);
  const Allocation* allocation = runtime.memory.find(at);
  if (allocation == nullptr || at + bytes > allocation->end()) {
    throw Refused(
        cudaErrorInvalidValue,
        fmt::format("{}: expected {} bytes of the device's memory, got {}", argument, bytes,
                    allocation == nullptr ? runtime.memory.describe(at)
                                          : fmt::format("{} of {}", allocation->end() - at, allocation->note)));
  }
}

/// Whether the memory of the host is pinned. Throws Refused for what is the device's, or not pinned as a whole.
bool is_pinned(const Runtime& runtime, const char* argument, const void* pointer, size_t bytes) {
  if (is_of_device(runtime, pointer)) {
    throw Refused(cudaErrorInvalidValue, fmt::format("{}: expected memory of the host, got the device's", argument));
  }
  const auto* const begin = static_cast<const std::byte*>(pointer);
  switch (runtime.host.place_of({begin, bytes})) {
    case HostMemory::Place::kPageable: return false;
    case HostMemory::Place::kPinned: return true;
    case HostMemory::Place::kFreed:
    case HostMemory::Place::kPartlyPinned: break;
  }
  throw Refused(cudaErrorInvalidValue,
                fmt::format("{}: {} bytes begin at {}", argument, bytes, runtime.host.describe(begin)));
}

/// Throws Fault where pinned memory was freed since the copy was asked for.
void require_pinned_still(const Runtime& runtime, const HostRange& range) {
  if (runtime.host.place_of(range) == HostMemory::Place::kFreed) {
    throw Fault(Fault::Kind::kHostMemory, fmt::format("{} before the copy of {} bytes had been done",
                                                      runtime.host.describe(range.begin), range.bytes));
  }
}

Work from_pageable(const Copy& what, Runtime& runtime, bool captured) {
  return {.what = fmt::format("{} of {} bytes from pageable memory", what.call, what.bytes),
          .begin = [=, &runtime](Ticket) {
            const auto* const from = static_cast<const std::byte*>(what.from);
            auto staged = std::make_shared<std::vector<std::byte>>();
            if (!captured) {
              staged->assign(from, from + what.bytes);
            }
            return [=, &runtime] {
              const DeviceRange to(runtime, what.to, what.bytes);
              std::memcpy(to.data(), captured ? from : staged->data(), what.bytes);
              to.all_written();
              return seconds_over_bus(what.bytes);
            };
          }};
}

Work from_pinned(const Copy& what, Runtime& runtime) {
  return {.what = fmt::format("{} of {} bytes from pinned memory", what.call, what.bytes),
          .begin = [=, &runtime](Ticket ticket) {
            const HostRange range{static_cast<const std::byte*>(what.from), what.bytes};
            auto before = std::make_shared<std::vector<std::byte>>();
            // Earlier work may fill the memory first; then its bytes are not known yet.
            if (!runtime.host.is_awaited(range, /*reads_too=*/false, runtime.streams)) {
              before->assign(range.begin, range.end());
            }
            runtime.host.will_use(range, /*writes=*/false, ticket);
            return [=, &runtime] {
              require_pinned_still(runtime, range);
              const DeviceRange to(runtime, what.to, what.bytes);
              const auto changed = std::mismatch(before->begin(), before->end(), range.begin).first;
              if (changed != before->end()) {
                throw Fault(Fault::Kind::kHostMemory,
                            fmt::format("the program wrote to the source before the copy had been done: byte {} of {} "
                                        "({}) changed",
                                        changed - before->begin(), what.bytes, runtime.host.describe(range.begin)));
              }
              std::memcpy(to.data(), range.begin, what.bytes);
              to.all_written();
              return seconds_over_bus(what.bytes);
            };
          }};
}

Work to_host(const Copy& what, Runtime& runtime, bool pinned) {
  return {.what = fmt::format("{} of {} bytes to {} memory", what.call, what.bytes, pinned ? "pinned" : "pageable"),
          .begin = [=, &runtime](Ticket ticket) {
            const HostRange range{static_cast<const std::byte*>(what.to), what.bytes};
            if (!runtime.host.is_awaited(range, /*reads_too=*/true, runtime.streams)) {
              std::memset(what.to, kPoison, what.bytes);
            }
            runtime.host.will_use(range, /*writes=*/true, ticket);
            return [=, &runtime] {
              require_pinned_still(runtime, range);
              const DeviceRange from(runtime, what.from, what.bytes);
              from.require_written();
              std::memcpy(what.to, from.data(), what.bytes);
              return seconds_over_bus(what.bytes);
            };
          }};
}

Work within_device(const Copy& what, Runtime& runtime) {
  const Action action = [=, &runtime] {
    const DeviceRange from(runtime, what.from, what.bytes);
    const DeviceRange to(runtime, what.to, what.bytes);
    std::memmove(to.data(), from.data(), what.bytes);
    std::memmove(to.written(), from.written(), what.bytes);
    return kSecondsOfCopy + 2 * static_cast<double>(what.bytes) / runtime.properties.memory_bytes_per_second;
  };
  return later(fmt::format("{} of {} bytes within the device", what.call, what.bytes), action);
}

Work within_host(const Copy& what) {
  const Action action = [=] {
    std::memcpy(what.to, what.from, what.bytes);
    return 0.0;
  };
  return later(fmt::format("{} of {} bytes within the host", what.call, what.bytes), action);
}

cudaMemcpyKind kind_of(const Copy& what, const Runtime& runtime) {
  if (what.kind != cudaMemcpyDefault) {
    return what.kind;
  }
  const bool to = is_of_device(runtime, what.to);
  const bool from = is_of_device(runtime, what.from);
  return to ? (from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
            : (from ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
}

}  // namespace

bool copy(const Copy& what, Runtime& runtime, Stream& stream) {
  if (what.bytes == 0) {
    return false;
  }
  const bool captured = stream.capture != nullptr;
  switch (kind_of(what, runtime)) {
    case cudaMemcpyHostToDevice: {
      require_of_device(runtime, "to", what.to, what.bytes);
      if (!is_pinned(runtime, "from", what.from, what.bytes)) {
        runtime.streams.put(stream, from_pageable(what, runtime, captured));
        return true;
      }
      runtime.streams.put(stream, from_pinned(what, runtime));
      return false;
    }
    case cudaMemcpyDeviceToHost: {
      require_of_device(runtime, "from", what.from, what.bytes);
      const bool pinned = is_pinned(runtime, "to", what.to, what.bytes);
      const Ticket ticket = runtime.streams.put(stream, to_host(what, runtime, pinned));
      if (!pinned && !captured) {
        runtime.streams.finish(ticket);
      }
      return false;
    }
    case cudaMemcpyDeviceToDevice:
      require_of_device(runtime, "to", what.to, what.bytes);
      require_of_device(runtime, "from", what.from, what.bytes);
      runtime.streams.put(stream, within_device(what, runtime));
      return false;
    case cudaMemcpyHostToHost: runtime.streams.finish(runtime.streams.put(stream, within_host(what))); return false;
    case cudaMemcpyDefault: break;
  }
  throw Refused(cudaErrorInvalidMemcpyDirection, fmt::format("unknown direction {}", static_cast<int>(what.kind)));
}

void set_bytes(const char* call, void* memory, int value, size_t bytes, Runtime& runtime, Stream& stream) {
  if (bytes == 0) {
    return;
  }
  require_of_device(runtime, "memory", memory, bytes);
  const Action action = [=, &runtime] {
    const DeviceRange to(runtime, memory, bytes);
    std::memset(to.data(), value, bytes);
    to.all_written();
    return kSecondsOfCopy + static_cast<double>(bytes) / runtime.properties.memory_bytes_per_second;
  };
  runtime.streams.put(stream, later(fmt::format("{} of {} bytes", call, bytes), action));
}

}  // namespace virtual_gpu
