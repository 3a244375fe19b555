#include "ops/pointwise/result_layout.h"

#include "core/factory.h"
#include "core/strided_loop.h"

#include <algorithm>

namespace norma::pointwise {

namespace {

/// True iff axis a must stand inside axis b; `unknown` when no operand tells.
enum class Order { inside, outside, unknown };

Order compare_axes(const Sizes& sizes, const std::vector<Strides>& strides, int64_t a, int64_t b) {
  for (const Strides& s : strides) {
    if (s[a] == 0 || s[b] == 0) {
      continue;  // broadcast along one of them
    }
    if (s[a] != s[b]) {
      return s[a] < s[b] ? Order::inside : Order::outside;
    }
    if (sizes[a] > sizes[b]) {  // equal strides: one of the axes has size 1 and stands inside
      return Order::outside;
    }
  }
  return Order::unknown;
}

/// Axes from the innermost to the outermost.
Axes axis_order(const Sizes& sizes, const std::vector<Strides>& strides) {
  const int64_t rank = sizes.size();
  Axes order;
  for (int64_t axis = rank - 1; axis >= 0; --axis) {
    order.push_back(axis);
  }
  // Insertion sort, since the comparison may not know: an axis moves inwards past those it cannot be compared with
  // only when a later one says that it belongs inside.
  for (int64_t i = 1; i < rank; ++i) {
    int64_t place = i;
    for (int64_t j = i - 1; j >= 0; --j) {
      const Order found = compare_axes(sizes, strides, order[j], order[place]);
      if (found == Order::outside) {
        std::swap(order[j], order[place]);
        place = j;
      } else if (found == Order::inside) {
        break;
      }
    }
  }
  return order;
}

}  // namespace

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
  Strides result = Strides::filled(sizes.size(), 0);
  int64_t step = 1;
  for (const int64_t axis : axis_order(sizes, strides)) {
    result[axis] = step;
    step *= std::max<int64_t>(sizes[axis], 1);
  }
  return result;
}

Tensor empty_for(const Sizes& sizes, DType dtype, const Tensors& operands) {
  return empty_strided(sizes, result_strides(sizes, operands), {.dtype = dtype, .device = operands.front().device()});
}

}  // namespace norma::pointwise
