#pragma once

#include "core/cuda/kernel.h"

// Threads that work on one row or set together, and their sums, in an order that is always the same.

namespace norma::kernels::NORMA_BACKEND {

/// high + low += other_high + other_low, where `low` takes what `high` loses to rounding (Knuth, 1969).
NORMA_DEVICE void add_in_two_parts(double& high, double& low, double other_high, double other_low) {
  const double total = high + other_high;
  const double of_other = total - high;
  const double lost = (high - (total - of_other)) + (other_high - of_other);
  low = (low + other_low) + lost;
  high = total;
}

/// `width` neighbouring lanes of a warp, a power of two. All lanes of the warp call its functions together.
class LaneTeam {
 public:
  NORMA_DEVICE explicit LaneTeam(int width = kWarp) : width_(width) {}
  NORMA_DEVICE int rank() const { return lane() & (width_ - 1); }
  NORMA_DEVICE int size() const { return width_; }
  /// The sum over the team, for each of its threads.
  template <class T>
  NORMA_DEVICE T sum(T value) const {
    for (int mask = width_ / 2; mask > 0; mask /= 2) {
      value += shuffle_xor(value, mask);
    }
    return value;
  }
  NORMA_DEVICE void sum(double& a, double& b) const {
    for (int mask = width_ / 2; mask > 0; mask /= 2) {
      const TwoNumbers others = shuffle_xor(TwoNumbers{a, b}, mask);
      a += others.first;
      b += others.second;
    }
  }
  NORMA_DEVICE void sum(float& a, float& b) const {
    a = sum(a);
    b = sum(b);
  }
  /// The sum of numbers high + low, in two parts.
  NORMA_DEVICE void sum_in_two_parts(double& high, double& low) const {
    for (int mask = width_ / 2; mask > 0; mask /= 2) {
      const TwoNumbers others = shuffle_xor(TwoNumbers{high, low}, mask);
      add_in_two_parts(high, low, others.first, others.second);
    }
  }
  NORMA_DEVICE double largest(double value) const {
    for (int mask = width_ / 2; mask > 0; mask /= 2) {
      const double other = shuffle_xor(value, mask);
      value = other > value ? other : value;
    }
    return value;
  }
  /// True iff `value` is true in any thread that has to call this team's functions together with this one.
  NORMA_DEVICE bool any(bool value) const { return any_lane(value); }

 private:
  int width_;
};

/// All threads of a block. The launch gives it kBytes of shared memory.
class BlockTeam {
 public:
  static constexpr size_t kBytes = 2 * kWarp * sizeof(double);

  NORMA_DEVICE explicit BlockTeam(double* shared) : shared_(shared) {}
  NORMA_DEVICE int rank() const { return thread(); }
  NORMA_DEVICE int size() const { return threads(); }

  template <class T>
  NORMA_DEVICE T sum(T value) const {
    T* of_warps = reinterpret_cast<T*>(shared_);
    value = LaneTeam().sum(value);
    if (lane() == 0) {
      of_warps[thread() / kWarp] = value;
    }
    sync_threads();
    value = 0;
    for (int i = 0; i < threads() / kWarp; ++i) {
      value += of_warps[i];
    }
    sync_threads();  // before the next sum is put in its place
    return value;
  }
  /// Two sums at a time.
  template <class T>
  NORMA_DEVICE void sum(T& a, T& b) const {
    struct alignas(2 * sizeof(T)) Pair {
      T a;
      T b;
    };
    Pair* of_warps = reinterpret_cast<Pair*>(shared_);
    LaneTeam().sum(a, b);
    if (lane() == 0) {
      of_warps[thread() / kWarp] = {a, b};
    }
    sync_threads();
    a = 0;
    b = 0;
    for (int i = 0; i < threads() / kWarp; ++i) {
      const Pair pair = of_warps[i];
      a += pair.a;
      b += pair.b;
    }
    sync_threads();  // before the next sum is put in its place
  }
  /// The sum of numbers high + low, in two parts.
  NORMA_DEVICE void sum_in_two_parts(double& high, double& low) const {
    LaneTeam().sum_in_two_parts(high, low);
    put(high, low);
    high = 0;
    low = 0;
    for (int i = 0; i < threads() / kWarp; ++i) {
      add_in_two_parts(high, low, shared_[2 * i], shared_[2 * i + 1]);
    }
    sync_threads();  // before the next sum is put in its place
  }
  /// All threads of a block have the same `value`.
  NORMA_DEVICE bool any(bool value) const { return value; }
  NORMA_DEVICE double largest(double value) const {
    put(LaneTeam().largest(value), 0);
    for (int i = 0; i < threads() / kWarp; ++i) {
      value = shared_[2 * i] > value ? shared_[2 * i] : value;
    }
    sync_threads();
    return value;
  }

 private:
  /// Puts this warp's numbers where the other warps read them.
  NORMA_DEVICE void put(double a, double b) const {
    if (lane() == 0) {
      shared_[2 * (thread() / kWarp)] = a;
      shared_[2 * (thread() / kWarp) + 1] = b;
    }
    sync_threads();
  }

  double* shared_;
};

/// The threads of one row: some lanes of a warp or a block.
template <bool by_block>
using RowTeam = std::conditional_t<by_block, BlockTeam, LaneTeam>;

template <bool by_block>
NORMA_DEVICE RowTeam<by_block> row_team(int width) {
  if constexpr (by_block) {
    return BlockTeam(shared_memory<double>());
  } else {
    return LaneTeam(width);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
