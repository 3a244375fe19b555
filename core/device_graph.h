#pragma once

#include "base/not_copied.h"
#include "core/device.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace norma {

/// Work of a device that is recorded once and launched as a whole, many times (a CUDA graph). A launch uses the
/// addresses and numbers of the recording. Numbers that change from launch to launch must lie in the device's memory.
class DeviceGraph : NotCopied {
 public:
  virtual ~DeviceGraph() = default;

  /// Calls work(), whose kernels and copies to the device are recorded and not done. Tensors that it makes lie in
  /// memory of the graph, also those that outlive the call: each launch writes them anew. Each launch copies to the
  /// device the bytes that the recorded copies had. Throws Error if work() copies to the host or waits for the device,
  /// and OutOfMemory. The earlier recording is gone.
  virtual void record(const std::function<void()>& work) = 0;
  /// Gives the recorded work to the device, after all that it was given before. Throws Error without a recording.
  virtual void launch() = 0;
  /// The number of kernels and copies of the recording.
  [[nodiscard]] virtual int64_t size() const = 0;
};

/// A graph without work; null if the device has no graphs.
std::unique_ptr<DeviceGraph> make_device_graph(Device device);

}  // namespace norma
