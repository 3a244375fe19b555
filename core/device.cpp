#include "core/device.h"

#include "base/error.h"
#include "base/parse_number.h"
#include "core/tf32.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace norma {
namespace {

/// The N of "prefix:N"; -1 for another name.
int index_behind(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix) || name.substr(prefix.size(), 1) != ":") {
    return -1;
  }
  return std::max(parse_number<int>(name.substr(prefix.size() + 1)).value_or(-1), -1);
}

/// The device that NORMA_DEVICE names, or the CPU if it is not set. Throws Error for one that cannot be used.
Device device_of_environment() {
  const char* name = std::getenv("NORMA_DEVICE");
  if (name == nullptr || *name == '\0') {
    return kCpu;
  }
  try {
    const Device device = device_from_string(name);
    check_available("device", device);
    return device;
  } catch (const Error& error) {
    fail("NORMA_DEVICE", "{}", error.what());
  }
}

/// Aligned to its size, since clang asks libatomic for other atomics.
struct alignas(sizeof(Device)) AlignedDevice {
  Device device;
};

/// Its index is -1 until somebody sets or asks for the device: a wrong NORMA_DEVICE does no harm after that.
std::atomic<AlignedDevice> default_device_state = AlignedDevice{{.index = -1}};

std::atomic<bool> tf32_is_allowed = false;

}  // namespace

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::cuda: return fmt::format("cuda:{}", device.index);
    case DeviceType::cuda_emulated: return fmt::format("cuda-emulated:{}", device.index);
  }
  return "?";
}

Device device_from_string(std::string_view name) {
  if (name == "cpu") {
    return kCpu;
  }
  if (name == "cuda") {
    return {.type = DeviceType::cuda};
  }
  if (name == "cuda-emulated" || name == "cuda-emulated:0") {
    return kCudaEmulated;
  }
  if (const int index = index_behind("cuda", name); index >= 0) {
    return {.type = DeviceType::cuda, .index = index};
  }
  fail("device", "expected cpu, cuda, cuda:N or cuda-emulated, got '{}'", name);
}

bool is_host(Device device) {
  return device.type == DeviceType::cpu;
}

Device default_device() {
  Device device = default_device_state.load(std::memory_order_relaxed).device;
  if (device.index < 0) {
    device = device_of_environment();
    default_device_state.store({device}, std::memory_order_relaxed);
  }
  return device;
}

void set_default_device(Device device) {
  check_available("set_default_device", device);
  default_device_state.store({device}, std::memory_order_relaxed);
}

bool allow_tf32() {
  return tf32_is_allowed;
}
void set_allow_tf32(bool allow) {
  tf32_is_allowed = allow;
}

}  // namespace norma
