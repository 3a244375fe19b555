#include "core/device_graph.h"

namespace norma {

constinit const DeviceGraphs no_graphs{};

std::unique_ptr<DeviceGraph> make_device_graph(Device device) {
  const auto make = device_graphs.table("device_graph", device).make;
  return make == nullptr ? nullptr : make(device.index);
}

}  // namespace norma
