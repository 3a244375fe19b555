#pragma once

#include "ops/cuda_results.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

// The PTX that nvcc made, on the virtual GPU, beside the same kernels compiled for the host, on cuda-emulated. Where
// each step is exactly rounded in both, they have the same bits. That needs sums in the same order, so the virtual GPU
// is the one that gives kernels the blocks that cuda-emulated gives them: NORMA_VIRTUAL_GPU=emulated (docs/cuda.md).

namespace norma::test {

inline bool has_the_plans_of_cuda_emulated() {
  for (const auto& [name, text] : cuda_facts()) {
    if (name == "cuda:0" && text.starts_with("GPU with the plans of cuda-emulated (virtual),")) {
      return true;
    }
  }
  std::printf("skipped: no virtual GPU with the plans of cuda-emulated\n");
  return false;
}

/// Where exp(), erfc(), log(), tanh() and pow() take part, which are each library's own: a unit or two of the last
/// place in each, and formulas that make a little more of it.
inline constexpr double kOfLibraries = 4;

inline const std::vector<DType> kPtxDTypes = {DType::float32, DType::bfloat16, DType::float16, DType::float64};
inline constexpr MemoryFormat kPtxFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

/// The number of the first element whose bits differ, or -1. Both are contiguous on the CPU.
inline int64_t first_other_bits(const Tensor& a, const Tensor& b) {
  const auto* ours = static_cast<const unsigned char*>(a.device_pointer());
  const auto* theirs = static_cast<const unsigned char*>(b.device_pointer());
  const auto size = static_cast<size_t>(size_of(a.dtype()));
  for (int64_t i = 0; i < a.numel(); ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(ours + at, theirs + at, size) != 0) {
      return i;
    }
  }
  return -1;
}

/// f(device), a list of tensors, has the same bits on both devices; with `units`, values that are so far apart at most,
/// in the last place of the largest number.
inline void compare_ptx(const std::string& name, const std::function<Tensors(Device)>& f, double units = 0) {
  const DefaultDeviceGuard guard(kCpu);
  const auto on = [&](Device device) {
    Tensors results = f(device);
    for (Tensor& result : results) {
      result = copy_of(to_device(result.detach(), kCpu), MemoryFormat::contiguous);
    }
    return results;
  };
  const Tensors ptx = on(kCuda);
  const Tensors emulated = on(kCudaEmulated);
  REQUIRE(ptx.size() == emulated.size());
  for (size_t i = 0; i < ptx.size(); ++i) {
    REQUIRE(ptx[i].dtype() == emulated[i].dtype());
    REQUIRE(ptx[i].sizes() == emulated[i].sizes());
    if (units == 0) {
      const int64_t other = first_other_bits(ptx[i], emulated[i]);
      const auto value = [&](const Tensor& x) {
        return other < 0 ? 0 : x.to_vector<double>()[static_cast<size_t>(other)];
      };
      CHECK_MESSAGE(other == -1, name, ", result ", i, ", element ", other, ": ", value(ptx[i]), " and ",
                    value(emulated[i]));
    } else {
      const DType dtype = ptx[i].dtype();
      const double unit = dtype == DType::float64    ? 0x1p-52
                          : dtype == DType::float32  ? 0x1p-23
                          : dtype == DType::bfloat16 ? 0x1p-7
                                                     : 0x1p-10;
      const double apart = relative_difference_or_nan(ptx[i], emulated[i]) / unit;
      CHECK_MESSAGE(apart <= units, name, ", result ", i, ": ", apart);
    }
  }
}

/// Puts numbers on the device of a run, in its dtype.
using Put = std::function<Tensor(const Tensor& numbers)>;

/// The same of f(put), for each dtype. Weights of 16-bit runs may be float32, and are compared as such.
inline void compare(const std::string& name, const std::vector<DType>& dtypes, MemoryFormat format, double units,
                    const std::function<Tensors(const Put& put)>& f) {
  for (const DType dtype : dtypes) {
    compare_ptx(
        fmt::format("{} {} {}", name, to_string(dtype), to_string(format)),
        [&](Device device) {
          return f([&](const Tensor& numbers) {
            const MemoryFormat order = numbers.rank() == 4 ? format : MemoryFormat::contiguous;
            return to_device(copy_of(numbers, order, dtype), device).detach();
          });
        },
        units);
  }
}

/// y and the gradients of all inputs, of f(inputs).
inline Tensors with_gradients(const std::function<Tensor(const Tensors&)>& f, Tensors inputs, const Put& put) {
  for (Tensor& input : inputs) {
    input = input.set_requires_grad();
  }
  const Tensor y = f(inputs);
  Tensors all{y};
  for (const Tensor& gradient : grad({y}, inputs, {put(random_tensor(y.sizes(), 99))})) {
    all.push_back(gradient);
  }
  return all;
}

}  // namespace norma::test
