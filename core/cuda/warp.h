#pragma once

namespace norma::kernels {

/// Threads that run in step. Every shuffle is one of all of them.
inline constexpr int kWarp = 32;

/// Two numbers that go through a shuffle together.
struct TwoNumbers {
  double first;
  double second;
};

}  // namespace norma::kernels
