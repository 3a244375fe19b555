#include "core/allocator.h"
#include "core/allocator_cpu.h"
#include "core/device.h"
#include "core/error.h"

namespace norma {

void check_available(std::string_view op, Device device) {
  check(device.type == DeviceType::cpu, op, "this build of Norma has no CUDA");
}

Allocator& allocator(Device device) {
  check_available("allocator", device);
  return cpu_allocator();
}

}  // namespace norma
