#pragma once

namespace norma::kernels {

/// The number of threads of a warp, which run in step. All of them take part in each shuffle.
inline constexpr int kWarp = 32;

/// Two numbers that go through a shuffle together.
struct TwoNumbers {
  double first;
  double second;
};

}  // namespace norma::kernels
