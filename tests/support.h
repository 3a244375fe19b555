#pragma once

#include "core/copy.h"
#include "core/factory.h"
#include "core/gradcheck.h"
#include "core/tape.h"
#include "core/tensor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace norma::test {

/// Where the elements of a test input lie.
enum class Layout { contiguous, channels_last, strided, unaligned };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::channels_last, Layout::strided, Layout::unaligned};
std::string to_string(Layout layout);

/// x's values with its strides, from element 1 of their storage on: no vector of 16 bytes begins there.
inline Tensor unaligned(const Tensor& x) {
  const Tensor storage = zeros({x.numel() + 1}, {.dtype = x.dtype(), .device = x.device()});
  const Tensor y = alias(storage, x.sizes(), x.strides(), /* offset= */ 1);
  copy_into(x, y);
  return y.detach();
}

/// x's values in another layout. `strided`: axes permuted in memory with gaps between elements and an offset.
/// channels_last needs rank 4; other ranks stay contiguous.
inline Tensor in_layout(const Tensor& x, Layout layout) {
  if (layout == Layout::unaligned) {
    return unaligned(copy_of(x, MemoryFormat::contiguous));
  }
  if (layout == Layout::strided) {
    Sizes padded;
    for (const int64_t size : x.sizes()) {
      padded.push_back(size + 1);
    }
    Strides strides = Strides::filled(x.rank(), 0);
    int64_t step = 2;                                  // a gap between all neighbours
    for (int64_t axis = 0; axis < x.rank(); ++axis) {  // axis 0 fastest: the reverse of row-major
      strides[axis] = step;
      step *= padded[axis];
    }
    Tensor storage = zeros({step + 4}, {.dtype = x.dtype(), .device = x.device()});
    Tensor y = alias(storage, x.sizes(), strides, /* offset= */ 3);
    copy_into(x, y);
    return y.detach();
  }
  return copy_of(
      x, layout == Layout::channels_last && x.rank() == 4 ? MemoryFormat::channels_last : MemoryFormat::contiguous);
}

inline std::string to_string(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::channels_last: return "channels_last";
    case Layout::strided: return "strided";
    case Layout::unaligned: return "unaligned";
  }
  return "?";
}

/// Calls f(first) with the elements of a dense tensor, which it may change, whatever the device.
template <class T, class F>
void change_elements(const Tensor& x, F&& f) {
  const Tensor on_host = to_device(x.detach(), kCpu);
  f(on_host.data<T>());
  if (on_host.storage() != x.storage()) {
    copy_into(on_host, x.detach());
  }
}

/// Sets element `index` in the memory of a dense tensor.
template <class T>
void set_element(const Tensor& x, int64_t index, T value) {
  change_elements<T>(x, [&](T* elements) { elements[index] = value; });
}

/// Normal float64 numbers, reproducible from `seed`.
inline Tensor random_tensor(const Sizes& sizes, uint64_t seed, DType dtype = DType::float64) {
  Generator generator(seed);
  return randn(sizes, {.dtype = dtype}, generator);
}

/// Largest |a - b| over all elements; infinite if any is NaN or the sizes differ, so that a comparison fails.
inline double max_difference(const Tensor& a, const Tensor& b) {
  if (!(a.sizes() == b.sizes())) {
    return INFINITY;
  }
  const std::vector<double> va = a.to_vector<double>();
  const std::vector<double> vb = b.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < va.size(); ++i) {
    if (va[i] == vb[i]) {
      continue;  // also equal infinities
    }
    const double difference = std::abs(va[i] - vb[i]);
    if (!(difference <= worst)) {
      worst = std::isnan(difference) ? INFINITY : difference;
    }
  }
  return worst;
}

/// True iff some elements of a and b differ by more than `by`. Other sizes and numbers that are not finite prove
/// nothing.
inline bool differ(const Tensor& a, const Tensor& b, double by = 0) {
  const double difference = max_difference(a, b);
  return std::isfinite(difference) && difference > by;
}

/// Largest |x| over all elements; NaN if one is NaN or infinite, so that a comparison with it, or with a share of it,
/// fails.
inline double largest_number(const Tensor& x) {
  double largest = 0;
  for (const double value : x.to_vector<double>()) {
    if (!std::isfinite(value)) {
      return NAN;
    }
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// Runs gradcheck on `f` with every input in every layout, and gradgradcheck too if `twice`. All inputs get gradients.
inline void check_gradients(const std::string& name, const TensorFunction& f, const Tensors& inputs, bool twice = false,
                            const GradcheckOptions& options = {}) {
  for (const Layout layout : kLayouts) {
    Tensors laid_out;
    for (const Tensor& x : inputs) {
      Tensor y = in_layout(x, layout);
      if (is_floating(y.dtype())) {
        y.set_requires_grad();
      }
      laid_out.push_back(y);
    }
    const GradcheckResult once = gradcheck(f, laid_out, options);
    CHECK_MESSAGE(once.passed, name << " (" << to_string(layout) << "): " << once.message);
    if (twice) {
      const GradcheckResult second = gradgradcheck(f, laid_out, options);
      CHECK_MESSAGE(second.passed, name << " twice (" << to_string(layout) << "): " << second.message);
    }
  }
}

}  // namespace norma::test
