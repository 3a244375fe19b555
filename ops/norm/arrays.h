#pragma once

#include "ops/norm/kernels.h"

// The arrays of a call with their types, for the kernels of every device. S is the dtype of x; T is that of the
// computation, and of stats, weights and their gradients.

namespace norma::kernels {

/// The rows of the stats, each by its first number.
template <class T>
struct Stats {
  T* mean;  ///< one number per set, as in all rows
  T* mean_low;
  T* rstd;
  T* centre;  ///< null but for Centring::deviation, as centre_low
  T* centre_low;

  Stats(const NormProblem& problem, T* rows)
      : mean(rows + kMeanRow * problem.shape.sets()),
        mean_low(rows + kMeanLowRow * problem.shape.sets()),
        rstd(rows + kRstdRow * problem.shape.sets()),
        centre(problem.centring == Centring::deviation ? rows + kCentreRow * problem.shape.sets() : nullptr),
        centre_low(problem.centring == Centring::deviation ? rows + kCentreLowRow * problem.shape.sets() : nullptr) {}
};

/// RunningStatistics with types.
template <class T>
struct Running {
  T* mean;
  T* var;
  double momentum;
  double var_factor;
  int64_t* batches;

  explicit Running(const RunningStatistics& running)
      : mean(static_cast<T*>(running.mean)),
        var(static_cast<T*>(running.var)),
        momentum(running.momentum),
        var_factor(running.var_factor),
        batches(running.batches) {}
};

/// NormForward with types.
template <class S, class T = compute_t<S>>
struct ForwardArrays : Stats<T> {
  const S* x;
  const T* weight;
  const T* bias;
  S* y;
  T* var;
  Activation activation;
  const S* residual;
  uint8_t* bits;
  Running<T> running;

  ForwardArrays(const NormProblem& problem, const NormForward& arrays)
      : Stats<T>(problem, static_cast<T*>(arrays.stats)),
        x(static_cast<const S*>(arrays.x)),
        weight(static_cast<const T*>(arrays.weight)),
        bias(static_cast<const T*>(arrays.bias)),
        y(static_cast<S*>(arrays.y)),
        var(static_cast<T*>(arrays.var)),
        activation(arrays.activation),
        residual(static_cast<const S*>(arrays.residual)),
        bits(arrays.bits),
        running(arrays.running) {}
};

/// NormBackward with types.
template <class S, class T = compute_t<S>>
struct BackwardArrays : Stats<const T> {
  const S* dy;
  const S* x;
  const T* weight;
  S* dx;
  T* dweight;
  T* dbias;
  Activation activation;
  const T* bias;
  const S* residual;
  const uint8_t* bits;
  S* dresidual;

  BackwardArrays(const NormProblem& problem, const NormBackward& arrays)
      : Stats<const T>(problem, static_cast<const T*>(arrays.stats)),
        dy(static_cast<const S*>(arrays.dy)),
        x(static_cast<const S*>(arrays.x)),
        weight(static_cast<const T*>(arrays.weight)),
        dx(static_cast<S*>(arrays.dx)),
        dweight(static_cast<T*>(arrays.dweight)),
        dbias(static_cast<T*>(arrays.dbias)),
        activation(arrays.activation),
        bias(static_cast<const T*>(arrays.bias)),
        residual(static_cast<const S*>(arrays.residual)),
        bits(arrays.bits),
        dresidual(static_cast<S*>(arrays.dresidual)) {}
};

}  // namespace norma::kernels
