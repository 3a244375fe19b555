#pragma once

#include "virtual_gpu/launch.h"
#include "virtual_gpu/memory.h"
#include "virtual_gpu/properties.h"

#include <functional>
#include <string>

namespace virtual_gpu {

/// The memory of the one virtual GPU of this process, made at the first use.
Memory& device_memory();
/// The properties of the GPU that NORMA_VIRTUAL_GPU names (h200 without it).
const Properties& device_properties();

/// Puts work into a stream (a cudaStream_t; nullptr for the default one). It runs later, in the stream's order, at a
/// moment that the seed chooses; a Fault that it throws is kept as the device's error, and is printed with `what`.
/// `work` reads and writes the device's memory through device_memory().
void enqueue(void* stream, std::string what, std::function<void()> work);

/// What all launches so far counted, by kernel, after all streams have been run to their ends.
struct KernelCount {
  std::string kernel;  ///< demangled
  Counters counters;
};
std::vector<KernelCount> counts();

}  // namespace virtual_gpu
