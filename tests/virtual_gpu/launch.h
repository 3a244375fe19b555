#pragma once

#include "virtual_gpu/memory.h"
#include "virtual_gpu/properties.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace virtual_gpu {

/// The kernels of one translation unit, as PTX text. A kernel is parsed when it is first asked for: a file of ours has
/// ten megabytes of PTX.
class Module {
 public:
  explicit Module(std::string ptx);
  ~Module();
  Module(Module&&) noexcept;
  Module& operator=(Module&&) noexcept;

  struct Kernel;  ///< a parsed kernel: kernel.h
  /// The kernel of this mangled name. Throws Fault (kUnsupported) for one that is not there or cannot be parsed.
  const Kernel& kernel(const std::string& mangled_name);
  /// The bytes of each of its parameters, in their order.
  const std::vector<uint32_t>& parameter_bytes(const std::string& mangled_name);
  /// The mangled names of all its kernels.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A name as C++ writes it; one that is not mangled stays.
std::string demangled(const std::string& mangled_name);

/// Kernels' resources by ptxas, from the machine code that lies beside the PTX, where it does.
struct KernelResources {
  int registers = 0;  ///< of a thread; 0 where they are not known
  uint64_t static_shared_bytes = 0;
  int max_threads = 1024;  ///< __launch_bounds__
};

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

struct Launch {
  int device = 0;  ///< the number of the GPU; memory of others is out of its bounds
  const Module::Kernel* kernel = nullptr;
  Dim3 grid;
  Dim3 block;
  uint64_t dynamic_shared_bytes = 0;
  std::vector<std::vector<std::byte>> arguments;  ///< by parameter
};

/// What the virtual GPU counts of a launch; exact, and the same on any machine.
struct Counters {
  uint64_t launches = 0;
  uint64_t warp_instructions = 0;
  uint64_t global_load_bytes = 0;  ///< bytes that lanes asked for
  uint64_t global_store_bytes = 0;
  uint64_t global_load_requests = 0;  ///< warp instructions
  uint64_t global_store_requests = 0;
  uint64_t global_load_sectors = 0;  ///< of 32 bytes, touched by a request
  uint64_t global_store_sectors = 0;
  uint64_t shared_requests = 0;
  uint64_t shared_wavefronts = 0;  ///< more than shared_requests where banks conflict
  uint64_t local_bytes = 0;

  Counters& operator+=(const Counters& other);
};

/// Runs a launch to its end, on the calling thread (and more, where NORMA_VIRTUAL_GPU_THREADS says so). Throws Fault.
Counters run(const Launch& launch, Memory& memory, const Properties& properties);

}  // namespace virtual_gpu
