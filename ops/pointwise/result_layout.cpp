#include "ops/pointwise/result_layout.h"

#include "core/factory.h"
#include "core/strided_loop.h"

#include <algorithm>

namespace norma::pointwise {

Strides result_strides(const Sizes& sizes, const Tensors& operands) {
  const auto all = [&](auto&& property) { return std::all_of(operands.begin(), operands.end(), property); };
  if (all([&](const Tensor& x) { return x.sizes() == sizes; })) {
    const Tensor& first = operands.front();
    if (all([](const Tensor& x) { return x.is_contiguous(); })) {
      return contiguous_strides(sizes);
    }
    if (all([](const Tensor& x) { return x.is_contiguous(MemoryFormat::channels_last); })) {
      return channels_last_strides(sizes);
    }
    if (is_non_overlapping_and_dense(sizes, first.strides()) &&
        all([&](const Tensor& x) { return x.strides() == first.strides(); })) {
      return first.strides();
    }
  }
  std::vector<Strides> strides;
  for (const Tensor& x : operands) {
    strides.push_back(broadcast_strides(x.sizes(), x.strides(), sizes));
  }
  return ordered_strides(sizes, strides);
}

Tensor empty_for(const Sizes& sizes, DType dtype, const Tensors& operands) {
  return empty_strided(sizes, result_strides(sizes, operands), {.dtype = dtype, .device = operands.front().device()});
}

}  // namespace norma::pointwise
