#pragma once

#include "core/parallel.h"
#include "core/sizes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace norma {

/// The loop nest over N operands of the same (broadcast) sizes, with as few axes as their strides allow. Axes stand
/// outermost first, in the order of decreasing stride of operand 0, then 1, …; neighbours that are one run of memory in
/// every operand are merged; axes of size 1 are gone. There is at least one axis.
template <size_t N>
struct StridedLoop {
  Sizes sizes;
  std::array<Strides, N> strides;  ///< in elements; 0 where an operand is broadcast

  [[nodiscard]] int64_t numel() const { return sizes.numel(); }
};

namespace detail {
/// True iff axis a must stand outside axis b: decided by the first operand whose strides differ and are not 0.
template <size_t N>
bool stands_outside(const std::array<Strides, N>& strides, const Sizes& sizes, int64_t a, int64_t b) {
  for (const Strides& s : strides) {
    if (s[a] == 0 || s[b] == 0) {
      continue;  // broadcast operands do not decide
    }
    if (s[a] != s[b]) {
      return s[a] > s[b];
    }
    if (sizes[a] != sizes[b]) {
      return sizes[a] > sizes[b];
    }
  }
  return a < b;
}
}  // namespace detail

template <size_t N>
StridedLoop<N> make_strided_loop(const Sizes& sizes, const std::array<Strides, N>& strides) {
  Axes order;
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] != 1) {
      order.push_back(axis);
    }
  }
  // The relation is not transitive with broadcast operands: std::sort would be undefined.
  order.sort([&](int64_t a, int64_t b) { return detail::stands_outside(strides, sizes, a, b); });
  StridedLoop<N> loop;
  for (const int64_t axis : order) {
    bool merges = !loop.sizes.empty();
    for (size_t n = 0; merges && n < N; ++n) {
      merges = loop.strides[n].back() == strides[n][axis] * sizes[axis];
    }
    if (!merges) {
      loop.sizes.push_back(sizes[axis]);
      for (size_t n = 0; n < N; ++n) {
        loop.strides[n].push_back(strides[n][axis]);
      }
    } else {
      const int64_t last = loop.sizes.size() - 1;
      loop.sizes[last] *= sizes[axis];
      for (size_t n = 0; n < N; ++n) {
        loop.strides[n][last] = strides[n][axis];
      }
    }
  }
  if (loop.sizes.empty()) {
    loop.sizes.push_back(1);
    for (size_t n = 0; n < N; ++n) {
      loop.strides[n].push_back(0);
    }
  }
  return loop;
}

/// True iff the elements of all operands lie side by side.
template <size_t N>
bool is_dense(const StridedLoop<N>& loop) {
  return loop.sizes.size() == 1 &&
         std::ranges::all_of(loop.strides, [](const Strides& strides) { return strides[0] == 1; });
}

/// The axis along which operand 1 is innermost while operand 0 is innermost along the last one; -1 if there is none.
inline int64_t transposed_axis(const StridedLoop<2>& loop) {
  const int64_t last = loop.sizes.size() - 1;
  if (loop.strides[0][last] != 1 || loop.strides[1][last] <= 1) {
    return -1;
  }
  for (int64_t axis = 0; axis < last; ++axis) {
    if (loop.strides[1][axis] == 1) {
      return axis;
    }
  }
  return -1;
}

/// Counts through axes in row-major order, with the offsets of N operands.
template <size_t N>
class Odometer {
 public:
  /// Sizes and strides, of which only the first `sizes.size()` count, must outlive it.
  Odometer(const Sizes& sizes, const std::array<Strides, N>& strides, int64_t position)
      : sizes_(sizes), strides_(strides), index_(Sizes::filled(sizes.size(), 0)) {
    for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
      index_[axis] = position % sizes[axis];
      position /= sizes[axis];
      for (size_t n = 0; n < N; ++n) {
        offsets_[n] += index_[axis] * strides[n][axis];
      }
    }
  }
  [[nodiscard]] const std::array<int64_t, N>& offsets() const { return offsets_; }
  void next() {
    for (int64_t axis = sizes_.size() - 1; axis >= 0; --axis) {
      const bool turns = ++index_[axis] == sizes_[axis];
      for (size_t n = 0; n < N; ++n) {
        offsets_[n] += turns ? strides_[n][axis] - sizes_[axis] * strides_[n][axis] : strides_[n][axis];
      }
      if (!turns) {
        return;
      }
      index_[axis] = 0;
    }
  }

 private:
  const Sizes& sizes_;
  const std::array<Strides, N>& strides_;
  Sizes index_;
  std::array<int64_t, N> offsets_{};
};

/// Calls f(offsets, count, strides) for runs of the innermost axis: offsets of each operand's first element,
/// how many elements, and each operand's stride, all in elements. Runs of one thread come in order.
template <size_t N, class F>
void for_each_run(const StridedLoop<N>& loop, F&& f, int64_t grain = kPointwiseGrain) {
  const int64_t inner = loop.sizes.back();
  const Sizes outer(std::span<const int64_t>(loop.sizes.begin(), loop.sizes.end() - 1));
  std::array<int64_t, N> inner_strides;
  for (size_t n = 0; n < N; ++n) {
    inner_strides[n] = loop.strides[n].back();
  }
  parallel_for(0, loop.numel(), grain, [&](int64_t begin, int64_t end) {
    int64_t column = begin % inner;
    Odometer<N> row(outer, loop.strides, begin / inner);
    for (int64_t done = begin; done < end; row.next()) {
      const int64_t count = std::min(inner - column, end - done);
      std::array<int64_t, N> offsets = row.offsets();
      for (size_t n = 0; n < N; ++n) {
        offsets[n] += column * inner_strides[n];
      }
      f(offsets, count, inner_strides);
      done += count;
      column = 0;
    }
  });
}

}  // namespace norma
