#pragma once

#include <cstdint>
#include <string>

namespace virtual_gpu {

/// What a program can ask of a GPU, and what the virtual one keeps to.
struct Properties {
  std::string name;  ///< "NVIDIA H200"
  int major = 0;     ///< compute capability 9.0: 9
  int minor = 0;
  int multiprocessors = 0;
  int threads_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  int registers_per_multiprocessor = 0;
  int threads_per_block = 1024;
  uint64_t shared_bytes_per_multiprocessor = 0;
  uint64_t shared_bytes_per_block = 48 << 10;  ///< without an opt-in
  uint64_t l2_bytes = 0;
  uint64_t memory_bytes = 0;
  double memory_bytes_per_second = 0;  ///< for bounds, never for measurements: by data sheet or a measured copy
  double clock_hz = 0;                 ///< the boost clock
};

/// The GPU of this name ("h100", "h200", "l4", "rtx4090"; "large" for tensors that none holds) from gpus.json beside
/// the program's sources. Throws std::runtime_error with the known names for another one.
Properties properties_of(const std::string& name);

}  // namespace virtual_gpu
