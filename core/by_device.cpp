#include "core/by_device.h"

#include "base/error.h"
#include "core/allocator.h"
#include "core/device_functions.h"
#include "core/device_graph.h"
#include "core/event.h"

#include <chrono>

namespace norma {

void detail::fail_no_kernels(std::string_view op, Device device, bool build_has_cuda) {
  check(device.type != DeviceType::cuda || build_has_cuda, op, "this build of Norma has no CUDA");
  check(device.type != DeviceType::cuda, op, "not yet on CUDA; --device cpu has it");
  check(device.type != DeviceType::cuda_emulated, op,
        "this build of Norma has no cuda-emulated; configure it with -DNORMA_EMULATED=ON");
  fail(op, "expected a device, got {}", to_string(device));
}

void detail::fail_no_kernels(std::string_view op, Device device) {
  fail_no_kernels(op, device, device_functions.cuda != nullptr);
}

void detail::use_cuda_device(int index) {
  device_functions.cuda->use(index);
}

void check_available(std::string_view op, Device device) {
  const DeviceFunctions& functions = device_functions.table(op, device);
  if (functions.check_there != nullptr) {
    functions.check_there(op, device.index);
  }
}

void synchronize(Device device) {
  const auto functions = device_functions.at("synchronize", device);
  if (functions->synchronize != nullptr) {
    functions->synchronize();
  }
}

Facts cuda_facts() {
  return device_functions.cuda == nullptr ? Facts{} : device_functions.cuda->facts();
}

std::unique_ptr<DeviceGraph> make_device_graph(Device device) {
  const auto make = device_functions.table("device_graph", device).make_graph;
  return make == nullptr ? nullptr : make(device.index);
}

Allocator& allocator(Device device) {
  return device_functions.table("allocator", device).allocator(device.index);
}

namespace {

/// The event of devices whose work is done when a kernel's function returns.
class HostEvent final : public DeviceEvent {
 public:
  void record() override { moment_ = Clock::now(); }
  [[nodiscard]] double seconds_since(const DeviceEvent& start) const override {
    return std::chrono::duration<double>(moment_ - dynamic_cast<const HostEvent&>(start).moment_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point moment_;
};

}  // namespace

bool host_clock_will_do(Device device) {
  return device_functions.table("event", device).make_event == nullptr;
}

std::unique_ptr<DeviceEvent> make_event(Device device) {
  return host_clock_will_do(device) ? std::make_unique<HostEvent>()
                                    : device_functions.at("event", device)->make_event();
}

Event::Event(Device device) : event_(make_event(device)) {}

}  // namespace norma
