#pragma once

#include "base/not_copied.h"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace norma {

enum class DeviceType : uint8_t {
  cpu,
  cuda,
  /// For tests: host memory that only kernels may touch, so that a program which looks into the memory of a GPU stops
  /// here, too. Its kernels are CUDA's, compiled for the host, where a family has them, else the CPU's.
  cuda_emulated,
};

/// The device where a tensor's storage lies.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend auto operator<=>(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};
inline constexpr Device kCuda{.type = DeviceType::cuda};
inline constexpr Device kCudaEmulated{.type = DeviceType::cuda_emulated};

/// "cpu", "cuda:0", "cuda-emulated:0"
std::string to_string(Device device);
/// Inverse of to_string; "cuda" means "cuda:0", "cuda-emulated" means "cuda-emulated:0", the only one there is. Throws
/// Error for anything else.
Device device_from_string(std::string_view name);

/// True iff the host may follow pointers to this device's memory.
bool is_host(Device device);

/// Throws Error("op: this build of Norma has no CUDA"), or the like, unless the device can be used here.
void check_available(std::string_view op, Device device);

/// Waits until the device has finished all its work. Clocks need this; computations do not.
void synchronize(Device device);

/// The device of new tensors that are given none: the one that was set, else the environment's NORMA_DEVICE, else the
/// CPU. Throws Error when NORMA_DEVICE names no device, or one that cannot be used here.
Device default_device();
/// Sets the default device for all threads. Throws Error unless the device can be used here.
void set_default_device(Device device);

/// Sets the default device for as long as it lives.
class DefaultDeviceGuard : NotCopied {
 public:
  explicit DefaultDeviceGuard(Device device) : before_(default_device()) { set_default_device(device); }
  ~DefaultDeviceGuard() { set_default_device(before_); }

 private:
  Device before_;
};

}  // namespace norma
