#pragma once

#include "virtual_gpu/launch.h"
#include "virtual_gpu/memory.h"
#include "virtual_gpu/properties.h"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>

// The kernels of the program, which its objects register before main().

namespace virtual_gpu {

/// The fat binary of one translation unit.
struct FatBinary {
  const std::byte* blob = nullptr;
  /// Set when the first of its kernels is asked for, as CUDA loads modules lazily.
  std::unique_ptr<Module> module;
  std::map<std::string, KernelResources> resources;
};

struct RegisteredKernel {
  FatBinary* binary = nullptr;
  std::string mangled;
  std::string name;  ///< demangled
  KernelResources resources;
  std::optional<uint64_t> dynamic_shared_limit;  ///< by cudaFuncSetAttribute
  bool loaded = false;
};

/// Everything that the program has registered.
class Kernels {
 public:
  FatBinary& add_binary(const std::byte* blob);
  void add_kernel(FatBinary& binary, const void* host_function, const char* mangled);

  /// nullptr for what is not registered.
  RegisteredKernel* find(const void* host_function);

  enum class Load { kDone, kNoImage, kNoMemory };
  /// Unpacks the kernel's module at the first use, and takes memory of the device for its code.
  Load load(RegisteredKernel& kernel, const Properties& properties, Memory& memory);

 private:
  std::map<const std::byte*, FatBinary> binaries_;
  std::map<const void*, RegisteredKernel> kernels_;
};

/// The program's registry: it exists before any static object of the program.
Kernels& kernels();

}  // namespace virtual_gpu
