#pragma once

#include "base/not_copied.h"
#include "core/device.h"
#include "core/emulated/memory.h"

#include <optional>
#include <string_view>

namespace norma {

namespace detail {
[[noreturn]] void fail_no_kernels(std::string_view op, Device device);
/// The number of the GPU that this thread's calls of CUDA are for; only DeviceFunctions::use sets it.
inline constinit thread_local int cuda_index = 0;
void use_cuda_device(int index);
}  // namespace detail

/// The kernels of one device, for one call. While it lives they may touch that device's memory: use it as a temporary
/// in the expression that calls the kernel. The call's arguments are evaluated while it lives; tests/house/seam.cmake
/// looks for arguments that read memory.
template <class K>
class KernelCall : NotCopied {
 public:
  KernelCall(const K& kernels, bool emulated) : kernels_(&kernels) {
    if (emulated) {
      access_.emplace();
    }
  }

  const K* operator->() const { return kernels_; }
  const K& operator*() const { return *kernels_; }

 private:
  const K* kernels_;
  std::optional<emulated::Access> access_;
};

/// The entry of a family's table for CUDA, or for cuda-emulated, in the lists of core/families.cpp and
/// ops/families.cpp. It is null in a build without that device. No other place asks whether a build has the two.
#ifdef NORMA_HAVE_CUDA
#define NORMA_IN_CUDA(table) &(table)
#else
#define NORMA_IN_CUDA(table) nullptr
#endif
#ifdef NORMA_HAVE_EMULATED
#define NORMA_IN_EMULATED(table) &(table)
#else
#define NORMA_IN_EMULATED(table) nullptr
#endif

/// A family of ops has one struct K of function pointers, and one object of it for each device. Only this class chooses
/// the object that does the work.
template <class K>
struct ByDevice {
  const K* cpu;
  const K* cuda;      ///< null in a build without CUDA, and for a family that has no kernels for it yet
  const K* emulated;  ///< null in a build with NORMA_EMULATED=OFF

  /// The kernels for tensors on `device`:
  ///   kernels::pool_kernels.at(op, x.device())->max_pool(…);   // Op::run() does this, with an entry in a profile
  /// This thread's calls of CUDA are for the device from here on. Throws Error("op: this build of Norma has no CUDA"),
  /// the same for cuda-emulated, or that the op is not yet on CUDA.
  [[nodiscard]] KernelCall<K> at(std::string_view op, Device device) const {
    const K& kernels = table(op, device);
    if (device.type == DeviceType::cuda && device.index != detail::cuda_index) {
      detail::use_cuda_device(device.index);
    }
    return {kernels, device.type == DeviceType::cuda_emulated};
  }

  /// As at(), for functions that do not touch the device's memory.
  [[nodiscard]] const K& table(std::string_view op, Device device) const {
    switch (device.type) {
      case DeviceType::cpu: return *cpu;
      case DeviceType::cuda:
        if (cuda != nullptr) {
          return *cuda;
        }
        break;
      case DeviceType::cuda_emulated:
        if (emulated != nullptr) {
          return *emulated;
        }
        break;
    }
    detail::fail_no_kernels(op, device);
  }
};

}  // namespace norma
