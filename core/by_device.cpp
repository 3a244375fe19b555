#include "core/by_device.h"

#include "core/allocator.h"
#include "core/device_functions.h"
#include "core/error.h"

namespace norma {

void detail::fail_no_kernels(std::string_view op, Device device) {
  check(device.type != DeviceType::cuda, op, "this build of Norma has no CUDA");
  fail(op, "expected a device, got {}", to_string(device));
}

void check_available(std::string_view op, Device device) {
  static_cast<void>(device_functions.table(op, device));
}

Allocator& allocator(Device device) {
  return device_functions.table("allocator", device).allocator(device.index);
}

}  // namespace norma
