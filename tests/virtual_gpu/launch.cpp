#include "virtual_gpu/launch.h"

#include "virtual_gpu/block.h"

#include <fmt/format.h>

#include <cstring>

namespace virtual_gpu {

Counters& Counters::operator+=(const Counters& other) {
  launches += other.launches;
  warp_instructions += other.warp_instructions;
  global_load_bytes += other.global_load_bytes;
  global_store_bytes += other.global_store_bytes;
  global_load_requests += other.global_load_requests;
  global_store_requests += other.global_store_requests;
  global_load_sectors += other.global_load_sectors;
  global_store_sectors += other.global_store_sectors;
  shared_requests += other.shared_requests;
  shared_wavefronts += other.shared_wavefronts;
  local_bytes += other.local_bytes;
  return *this;
}

namespace {

/// The parameters as the kernel reads them.
std::vector<std::byte> packed(const Launch& launch) {
  const Module::Kernel& kernel = *launch.kernel;
  if (launch.arguments.size() != kernel.parameter_bytes.size()) {
    throw Fault(Fault::Kind::kResources, fmt::format("{}: expected {} parameters, got {}", kernel.name,
                                                     kernel.parameter_bytes.size(), launch.arguments.size()));
  }
  std::vector<std::byte> bytes(kernel.all_parameter_bytes);
  for (size_t k = 0; k < launch.arguments.size(); ++k) {
    if (launch.arguments[k].size() != kernel.parameter_bytes[k]) {
      throw Fault(Fault::Kind::kResources, fmt::format("{}: parameter {}: expected {} bytes, got {}", kernel.name, k,
                                                       kernel.parameter_bytes[k], launch.arguments[k].size()));
    }
    std::memcpy(bytes.data() + kernel.parameter_offsets[k], launch.arguments[k].data(), launch.arguments[k].size());
  }
  return bytes;
}

}  // namespace

Counters run(const Launch& launch, Memory& memory, const Properties& properties) {
  static_cast<void>(properties);
  LaunchContext context{&launch, launch.kernel, &memory, packed(launch)};
  Block block(context);
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  for (uint64_t number = 0; number < blocks; ++number) {
    block.run(number);
  }
  block.counters.launches = 1;
  return block.counters;
}

}  // namespace virtual_gpu
