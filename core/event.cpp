#include "core/event.h"

#include "core/device_functions.h"

#include <chrono>

namespace norma {

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
