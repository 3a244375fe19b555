#pragma once

#include "virtual_gpu/launch.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

// What nvcc puts into a program: a fat binary for each translation unit, with machine code for some GPUs and PTX.

namespace virtual_gpu {

/// One entry of a fat binary, unpacked.
struct FatEntry {
  enum class Kind { kPtx = 1, kMachineCode = 2 };

  Kind kind = Kind::kPtx;
  int capability = 0;  ///< 90 for sm_90 and compute_90
  std::vector<std::byte> bytes;
};

/// The entries of the fat binary that begins at `blob`. Throws Fault (kUnsupported) for what is not one, or is packed
/// in a way that we do not know.
std::vector<FatEntry> entries_of(const std::byte* blob);

/// What ptxas noted in machine code (an ELF file) about each of its kernels, by mangled name. Throws Fault
/// (kUnsupported) for what is no such file.
std::map<std::string, KernelResources> resources_of(std::span<const std::byte> machine_code);

}  // namespace virtual_gpu
