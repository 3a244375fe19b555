#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace norma {

enum class DeviceType : uint8_t { cpu, cuda };

/// Where a tensor's storage lies.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

inline constexpr Device kCpu{};

/// "cpu", "cuda:0"
std::string to_string(Device device);
/// Inverse of to_string; "cuda" means "cuda:0". Throws Error for anything else.
Device device_from_string(std::string_view name);

/// Throws Error("op: this build of Norma has no CUDA") unless the device can be used here.
void check_available(std::string_view op, Device device);

}  // namespace norma
