#pragma once

#include "cuda_devices.h"
#include "launch_checks_guard.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// CUDA's kernels beside the CPU's. Sums come in another order, and functions such as exp() from another library: what
// float64 gives on the CPU is the measure.

namespace norma::test {

/// Rounded to a dtype and back, so that all dtypes begin with the same numbers.
inline Tensor rounded(const Tensor& x, DType dtype) {
  return copy_of(copy_of(x, MemoryFormat::preserve, dtype), MemoryFormat::preserve, DType::float64);
}

/// The largest difference as a share of the largest number.
inline double relative_difference(const Tensor& a, const Tensor& b) {
  double largest = 1e-2;
  for (const double value : b.to_vector<double>()) {
    largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0);
  }
  return max_difference(a, b) / largest;
}

/// The same, with NaN where NaN is and infinities where these are.
inline double relative_difference_or_nan(const Tensor& a, const Tensor& b) {
  std::vector<double> found = a.to_vector<double>();
  std::vector<double> expected = b.to_vector<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool same = std::isnan(expected[i]) ? std::isnan(found[i]) : expected[i] == found[i];
    if (!std::isfinite(expected[i])) {
      if (!same) {
        return std::numeric_limits<double>::infinity();
      }
      found[i] = expected[i] = 0;
    }
  }
  return relative_difference(from_vector<double>(found, a.sizes()), from_vector<double>(expected, b.sizes()));
}

/// Results in float64 on the CPU.
inline Tensors on_cpu(Tensors results) {
  for (Tensor& result : results) {
    result = copy_of(to_device(result.detach(), kCpu), MemoryFormat::contiguous, DType::float64);
  }
  return results;
}

/// f(device), a list of tensors, has the same bits each time and in any order of threads.
template <class F>
void check_any_order(const std::string& name, F&& f) {
  const LaunchChecksGuard without_seed(emulated::LaunchChecks{});
  for (const Device device : cuda_devices()) {
    const Tensors first = on_cpu(f(device));
    for (const uint64_t seed : {1, 2, 3}) {
      const LaunchChecksGuard checks({.order_seed = seed});
      const Tensors again = on_cpu(f(device));
      for (size_t i = 0; i < first.size(); ++i) {
        CHECK_MESSAGE(again[i].to_vector<double>() == first[i].to_vector<double>(), name, ", result ", i);
      }
    }
  }
}

}  // namespace norma::test
