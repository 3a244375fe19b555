#pragma once

#include "base/not_copied.h"
#include "core/device.h"

#include <memory>

namespace norma {

/// A moment in the work of a device. Each kind of device has a class of its own.
class DeviceEvent : NotCopied {
 public:
  DeviceEvent() = default;
  virtual ~DeviceEvent() = default;

  virtual void record() = 0;
  /// `start` must be of the same device.
  [[nodiscard]] virtual double seconds_since(const DeviceEvent& start) const = 0;
};

/// True iff the device's work is done when a kernel's function returns: then the host's clock can time a single op.
bool host_clock_will_do(Device device);

/// A new event of the device, or one of the host's clock where host_clock_will_do().
std::unique_ptr<DeviceEvent> make_event(Device device);

/// A moment in the work of a device, for measuring how long a part of it takes:
///   Event start, end;
///   start.record();
///   const Tensor y = layer(x);
///   end.record();
///   const double seconds = end.seconds_since(start);
class Event {
 public:
  explicit Event(Device device = default_device());

  /// Marks the moment at which the device finishes all work given to it so far. Does not wait.
  void record() { event_->record(); }
  /// Seconds from `start` to this event. Both must have been recorded, on the same device. Waits for both.
  [[nodiscard]] double seconds_since(const Event& start) const { return event_->seconds_since(*start.event_); }

 private:
  std::unique_ptr<DeviceEvent> event_;
};

}  // namespace norma
