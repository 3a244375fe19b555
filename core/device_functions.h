#pragma once

#include "core/allocator.h"
#include "core/by_device.h"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma {

/// Names and texts, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

class DeviceEvent;   // core/event.h
class DeviceGraph;   // core/device_graph.h
class UploadStream;  // core/upload.h

/// The services of a device besides its kernels, and facts about it.
struct DeviceFunctions {
  Allocator& (*allocator)(int index);
  /// Copies memory of the host to the device. On return `host` is the caller's again, and all that the device is given
  /// from then on sees the copy; the device may make it later.
  void (*from_host)(void* device, const void* host, size_t bytes);
  /// Copies memory of the device to the host, after all work that the device was given before. The copy is done on
  /// return.
  void (*to_host)(void* host, const void* device, size_t bytes);
  /// Throws Error("op: …") unless the device with this number exists. Null: the device always exists.
  void (*check_there)(std::string_view op, int index) = nullptr;
  /// From now on this thread's kernels, and the functions below, are for the device with this number. Null: there is
  /// one device.
  void (*use)(int index) = nullptr;
  /// Returns when all work that was given to the device is done. Null: it is done when a kernel's function returns.
  void (*synchronize)() = nullptr;
  /// The lines of `norma info` about these devices and their drivers; null: none.
  Facts (*facts)() = nullptr;
  /// Makes an event of core/event.h. Null: the host's clock serves, since work is done when a kernel's function
  /// returns.
  std::unique_ptr<DeviceEvent> (*make_event)() = nullptr;
  /// Makes the stream of an Upload, for a device that has make_event. Null: its copies are done at once.
  std::unique_ptr<UploadStream> (*make_upload_stream)() = nullptr;
  /// Makes a graph (core/device_graph.h) without work, or returns null where none can be made now. If this pointer is
  /// null, the device has no graphs.
  std::unique_ptr<DeviceGraph> (*make_graph)(int index) = nullptr;
  /// Bytes of the last cache before the device's memory. Null: the device's memory is behind the host's caches.
  size_t (*cache_bytes)() = nullptr;
  /// True iff copies from the host take time that is worth saving: images go to such a device as bytes.
  bool is_far = false;
  /// True iff products in 16 bits, and of float32 through TF32, are faster than plain float32 products.
  bool has_tensor_cores = false;
};

/// Serves as from_host and to_host for devices whose memory is the host's.
void copy_host_memory(void* to, const void* from, size_t bytes);

namespace detail {
/// Throws the Error of ByDevice::at() for a device without kernels. `build_has_cuda`: other ops have CUDA kernels, but
/// this one has none.
[[noreturn]] void fail_no_kernels(std::string_view op, Device device, bool build_has_cuda);
}  // namespace detail

/// Facts about this machine's CUDA devices; empty in a build without CUDA.
Facts cuda_facts();

extern const DeviceFunctions cpu_functions, cuda_functions, emulated_functions;
extern const ByDevice<DeviceFunctions> device_functions;

}  // namespace norma
