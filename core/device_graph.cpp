#include "core/device_graph.h"

#include "core/device_functions.h"

namespace norma {

std::unique_ptr<DeviceGraph> make_device_graph(Device device) {
  const auto make = device_functions.table("device_graph", device).make_graph;
  return make == nullptr ? nullptr : make(device.index);
}

}  // namespace norma
