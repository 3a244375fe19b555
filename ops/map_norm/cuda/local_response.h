#pragma once

#include "core/cuda/number.h"
#include "ops/map_norm/kernels.h"
#include "ops/map_norm/response_limits.h"

#include <cmath>

// Local response norm, with a thread for each element. dx takes two kernels: the first writes the shares that each
// element gives to its neighbours, in double, whose range holds every such number.

namespace norma::kernels::NORMA_BACKEND {

template <class S>
struct ResponseArrays {
  const S* x;
  const S* dy;
  double* shares;  ///< dy * x * s^(-beta - 1)
  S* result;
};

/// The formulas of one call.
template <class T>
struct Responder {
  LocalResponseProblem problem;
  ResponseLimits<T> limits;
  int64_t stride;  ///< from one channel to the next
  int64_t count;   ///< of all elements

  Responder(const LocalResponseProblem& p, bool gradient)
      : problem(p),
        limits(p.beta, gradient),
        stride(p.shape.channels_last ? 1 : p.shape.inner),
        count(p.shape.maps() * p.shape.inner) {}

  NORMA_DEVICE int64_t channel_of(int64_t i) const {
    const int64_t line = quotient(i, stride);
    return line - quotient(line, problem.shape.channels) * problem.shape.channels;
  }
  /// Calls f(j) for the elements at i of `below` channels before, of i's own channel, and of `above` channels behind.
  template <class F>
  NORMA_DEVICE void for_each_neighbour(int64_t i, int64_t below, int64_t above, F&& f) const {
    const int64_t channel = channel_of(i);
    const int64_t last = problem.shape.channels - 1;
    const int64_t from = channel < below ? -channel : -below;
    const int64_t to = channel + above > last ? last - channel : above;
    for (int64_t k = from; k <= to; ++k) {
      f(i + k * stride);
    }
  }

  /// s = k + scale * sum of x², in N.
  template <class N, class S>
  NORMA_DEVICE N sum_at(const S* x, int64_t i) const {
    N squares = 0;
    for_each_neighbour(i, problem.below, problem.above, [&](int64_t j) {
      const auto value = static_cast<N>(to_number(x[j]));
      squares = fused_multiply_add(value, value, squares);
    });
    return fused_multiply_add(squares, static_cast<N>(problem.scale), static_cast<N>(problem.k));
  }
  NORMA_DEVICE bool is_in_range(T s) const { return limits.least <= s && s <= limits.most; }

  /// s^-beta
  template <class N>
  NORMA_DEVICE N power_of(N s) const {
    if (problem.beta == 0.75) {
      const N root = std::sqrt(s);
      const N power = N(1) / (root * std::sqrt(root));
      if constexpr (std::is_same_v<N, float>) {
        // e = 1 - s^3 power^4 is the error of four roundings; (1 - e)^(-1/4) = 1 + e / 4 + …
        const N square = s * power * power;
        return fused_multiply_add(power * fused_multiply_add(-s * square, square, N(1)), N(0.25), power);
      }
      return power;
    }
    return std::pow(s, static_cast<N>(-problem.beta));
  }
  /// dy where y = x * power is not cut off, else 0.
  template <class N>
  NORMA_DEVICE N through_relu(N dy, N x, N power) const {
    return problem.relu && x * power <= N(0) ? N(0) : dy;
  }

  /// Calls f(s) with the sum at an element: in T, or in double if its powers leave the range of T.
  template <class S, class F>
  NORMA_DEVICE void with_sum(const S* x, int64_t i, F&& f) const {
    const T s = sum_at<T>(x, i);
    if (is_in_range(s)) {
      f(s);
    } else {
      f(sum_at<double>(x, i));
    }
  }
};

template <class S>
NORMA_KERNEL void respond(Responder<compute_t<S>> of, ResponseArrays<S> a) {
  using T = compute_t<S>;
  for (int64_t i = global_thread(); i < of.count; i += global_threads()) {
    of.with_sum(a.x, i, [&](auto s) {
      using N = decltype(s);
      const N y = static_cast<N>(to_number(a.x[i])) * of.power_of(s);
      a.result[i] = to_element<S>(static_cast<T>(of.problem.relu && y <= N(0) ? N(0) : y));
    });
  }
}

template <class S>
NORMA_KERNEL void make_response_shares(Responder<compute_t<S>> of, ResponseArrays<S> a) {
  for (int64_t i = global_thread(); i < of.count; i += global_threads()) {
    of.with_sum(a.x, i, [&](auto s) {
      using N = decltype(s);
      const auto x = static_cast<N>(to_number(a.x[i]));
      const N power = of.power_of(s);
      const N dy = of.through_relu(static_cast<N>(to_number(a.dy[i])), x, power);
      a.shares[i] = static_cast<double>(dy * power * x / s);
    });
  }
}

template <class S>
NORMA_KERNEL void response_gradient(Responder<compute_t<S>> of, ResponseArrays<S> a) {
  using T = compute_t<S>;
  const double factor = -2 * of.problem.scale * of.problem.beta;
  for (int64_t i = global_thread(); i < of.count; i += global_threads()) {
    double shares = 0;
    of.for_each_neighbour(i, of.problem.above, of.problem.below, [&](int64_t j) { shares += a.shares[j]; });
    of.with_sum(a.x, i, [&](auto s) {
      using N = decltype(s);
      const auto x = static_cast<N>(to_number(a.x[i]));
      const N power = of.power_of(s);
      const N direct = of.through_relu(static_cast<N>(to_number(a.dy[i])), x, power) * power;
      const double dx = static_cast<double>(x) * (factor * shares) + static_cast<double>(direct);
      a.result[i] = to_element<S>(static_cast<T>(dx));
    });
  }
}

inline void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays) {
  constexpr int kThreads = 256;
  dispatch_any_floating("local_response_norm", dtype, [&](auto zero) {
    using S = decltype(zero);
    const bool gradient = arrays.dy != nullptr;
    const Responder<compute_t<S>> of(problem, gradient);
    const DeviceBuffer<double> shares(gradient ? of.count : 0);
    const ResponseArrays<S> a{.x = static_cast<const S*>(arrays.x),
                              .dy = static_cast<const S*>(arrays.dy),
                              .shares = shares.data(),
                              .result = static_cast<S*>(arrays.result)};
    const auto run = [&](auto kernel) {
      launch(blocks_for(of.count, kThreads), threads_for(of.count, kThreads), 0, current_stream(), kernel, of, a);
    };
    if (gradient) {
      run(make_response_shares<S>);
      run(response_gradient<S>);
    } else {
      run(respond<S>);
    }
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
