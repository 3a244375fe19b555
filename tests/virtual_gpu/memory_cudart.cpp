#include "virtual_gpu/copies.h"
#include "virtual_gpu/runtime.h"

#include <fmt/format.h>

// CUDA's functions that allocate and free memory of the device and of the host.

namespace virtual_gpu {
namespace {

cudaError_t allocate(Runtime& runtime, void** memory, size_t bytes, int device) {
  *memory = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  const uint64_t address = runtime.memory.allocate(bytes, device);
  if (address == 0) {
    return cudaErrorMemoryAllocation;
  }
  *memory = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

void release(Runtime& runtime, void* memory) {
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (!runtime.memory.release(address)) {
    throw Refused(cudaErrorInvalidValue,
                  fmt::format("expected the begin of an allocation, got {}", runtime.memory.describe(address)));
  }
}

cudaError_t allocate_host(const char* name, void** memory, size_t bytes) {
  return call(name, [&](Runtime& runtime) {
    runtime.forbid_allocation_in_capture(name);
    *memory = bytes == 0 ? nullptr : runtime.host.allocate(bytes);
    return bytes != 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

}  // namespace
}  // namespace virtual_gpu

using virtual_gpu::call;
using virtual_gpu::Refused;
using virtual_gpu::Runtime;

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return call("cudaMalloc", [&](Runtime& runtime) {
    runtime.forbid_allocation_in_capture("cudaMalloc");
    return virtual_gpu::allocate(runtime, memory, bytes, virtual_gpu::current_device());
  });
}

cudaError_t cudaFree(void* memory) {
  return call("cudaFree", [&](Runtime& runtime) {
    runtime.forbid_in_capture("cudaFree");
    if (memory == nullptr) {
      return cudaSuccess;
    }
    runtime.streams.finish_all();  // as CUDA does
    virtual_gpu::release(runtime, memory);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return call("cudaMallocAsync", [&](Runtime& runtime) {
    runtime.forbid_in_capture("cudaMallocAsync");
    return virtual_gpu::allocate(runtime, memory, bytes, runtime.stream_for_work(stream).device);
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return call("cudaFreeAsync", [&](Runtime& runtime) {
    runtime.forbid_in_capture("cudaFreeAsync");
    const virtual_gpu::Action action = [&runtime, memory] {
      virtual_gpu::release(runtime, memory);
      return 0.0;
    };
    runtime.streams.put(runtime.stream_for_work(stream), virtual_gpu::later("cudaFreeAsync", action));
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  return call("cudaMemGetInfo", [&](const Runtime& runtime) {
    *available = runtime.memory.available(virtual_gpu::current_device());
    *total = runtime.memory.capacity();
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return virtual_gpu::allocate_host("cudaMallocHost", memory, bytes);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return virtual_gpu::allocate_host("cudaHostAlloc", memory, bytes);
}

// CUDA does not promise to wait here, so it does not.
cudaError_t cudaFreeHost(void* memory) {
  return call("cudaFreeHost", [&](Runtime& runtime) {
    runtime.forbid_allocation_in_capture("cudaFreeHost");
    if (memory != nullptr && !runtime.host.release(memory)) {
      throw Refused(cudaErrorInvalidValue, "expected the begin of pinned memory, got byte " +
                                               runtime.host.describe(static_cast<const std::byte*>(memory)));
    }
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  return call("cudaHostRegister", [&](Runtime& runtime) {
    return runtime.host.pin(memory, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* memory) {
  return call("cudaHostUnregister", [&](Runtime& runtime) {
    return runtime.host.unpin(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  return call("cudaPointerGetAttributes", [&](const Runtime& runtime) {
    *attributes = {};
    void* const same = const_cast<void*>(memory);
    if (runtime.memory.find(reinterpret_cast<uint64_t>(memory)) != nullptr) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->devicePointer = same;
    } else if (runtime.host.place_of({static_cast<const std::byte*>(memory), 1}) ==
               virtual_gpu::HostMemory::Place::kPinned) {
      attributes->type = cudaMemoryTypeHost;
      attributes->hostPointer = same;
    } else {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->hostPointer = same;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&](Runtime& runtime) {
    virtual_gpu::Stream& found = runtime.stream_for_work(stream);
    virtual_gpu::copy({.call = "cudaMemcpyAsync", .to = to, .from = from, .bytes = bytes, .kind = kind}, runtime,
                      found);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&](Runtime& runtime) {
    runtime.forbid_in_capture("cudaMemcpy");
    virtual_gpu::Stream& stream = runtime.stream_for_work(nullptr);
    const bool from_pageable = virtual_gpu::copy(
        {.call = "cudaMemcpy", .to = to, .from = from, .bytes = bytes, .kind = kind}, runtime, stream);
    // What is staged, or stays in the device, may still be on its way when the call returns.
    if (!from_pageable && kind != cudaMemcpyDeviceToDevice) {
      runtime.streams.finish(stream);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&](Runtime& runtime) {
    virtual_gpu::set_bytes("cudaMemsetAsync", memory, value, bytes, runtime, runtime.stream_for_work(stream));
    return cudaSuccess;
  });
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return call("cudaMemset", [&](Runtime& runtime) {
    runtime.forbid_in_capture("cudaMemset");
    virtual_gpu::set_bytes("cudaMemset", memory, value, bytes, runtime, runtime.stream_for_work(nullptr));
    return cudaSuccess;
  });
}

}  // extern "C"
