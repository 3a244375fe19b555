#pragma once

#include "virtual_gpu/runtime.h"

// Copies, each at the last moment that CUDA's documentation allows ("API synchronization behavior").

namespace virtual_gpu {

struct Copy {
  const char* call = nullptr;
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
};

/// Gives a copy to a stream.
/// - From pageable memory to the device: the bytes are taken before this returns, and reach the device late.
/// - From pinned memory to the device: late. The program must leave the bytes alone until then (Fault kHostMemory).
/// - To pageable memory: done before this returns. To pinned memory: late; until then it holds poison.
/// - Within the device: late. Within the host: done before this returns.
/// In a capture all of them are late. Throws Refused where CUDA refuses the pointers.
/// @return whether the bytes were taken from pageable memory
bool copy(const Copy& what, Runtime& runtime, Stream& stream);

/// Sets bytes of the device's memory, late.
void set_bytes(const char* call, void* memory, int value, size_t bytes, Runtime& runtime, Stream& stream);

}  // namespace virtual_gpu
