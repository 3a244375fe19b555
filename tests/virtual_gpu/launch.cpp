#include "virtual_gpu/launch.h"

#include "virtual_gpu/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

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

/// A number in the environment; `otherwise` where it is not set.
uint64_t setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::max<uint64_t>(1, std::strtoull(text, nullptr, 10));
}

/// The blocks of a launch that run: all of them, or as many at each end as NORMA_VIRTUAL_GPU_BLOCKS says.
struct RunningBlocks {
  uint64_t all;
  uint64_t count = std::min(all, setting("NORMA_VIRTUAL_GPU_BLOCKS", all) * 2);

  [[nodiscard]] uint64_t operator[](uint64_t i) const { return i < count / 2 ? i : all - count + i; }
};

/// Runs blocks with several threads of the host. Of several faults, that of the first block is thrown.
Counters run_in_threads(const LaunchContext& context, const RunningBlocks& blocks, uint64_t threads) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  Counters counters;
  std::exception_ptr fault;
  uint64_t fault_block = blocks.count;
  const auto work = [&] {
    uint64_t number = 0;
    Block block(context);
    try {
      while ((number = next++) < blocks.count) {
        block.run(blocks[number]);
      }
    } catch (...) {
      next = blocks.count;
      const std::scoped_lock lock(mutex);
      if (number < fault_block) {
        fault_block = number;
        fault = std::current_exception();
      }
    }
    const std::scoped_lock lock(mutex);
    counters += block.counters;
  };
  std::vector<std::jthread> workers;
  for (uint64_t k = 0; k < threads; ++k) {
    workers.emplace_back(work);
  }
  workers.clear();
  if (fault != nullptr) {
    std::rethrow_exception(fault);
  }
  return counters;
}

}  // namespace

Counters run(const Launch& launch, Memory& memory, const Properties& properties) {
  const uint64_t shared = launch.kernel->static_shared_bytes + launch.dynamic_shared_bytes;
  const uint64_t most = properties.shared_bytes_per_multiprocessor;
  if (most != 0 && shared > most) {
    throw Fault(Fault::Kind::kResources, fmt::format("{}: expected at most {} bytes of shared memory, got {}",
                                                     launch.kernel->name, most, shared));
  }
  const RunningBlocks blocks{uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z};
  const uint64_t threads = std::min(setting("NORMA_VIRTUAL_GPU_THREADS", 1), blocks.count);  // of the host
  const LaunchContext context{.launch = &launch,
                              .kernel = launch.kernel,
                              .memory = &memory,
                              .parameters = packed(launch),
                              .begin = tick(),
                              .races = races_are_checked(),
                              .several_threads = threads > 1,
                              .some_blocks = blocks.count < blocks.all};
  Counters counters;
  if (threads > 1) {
    counters = run_in_threads(context, blocks, threads);
  } else {
    Block block(context);
    for (uint64_t number = 0; number < blocks.count; ++number) {
      block.run(blocks[number]);
    }
    counters = block.counters;
  }
  counters.launches = 1;
  return counters;
}

}  // namespace virtual_gpu
