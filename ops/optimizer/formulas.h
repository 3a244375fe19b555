// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_OPTIMIZER_FORMULAS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_OPTIMIZER_FORMULAS_H
#undef NORMA_OPS_OPTIMIZER_FORMULAS_H
#else
#define NORMA_OPS_OPTIMIZER_FORMULAS_H
#endif

#include "ops/optimizer/kernels.h"

// The steps of optimizers in numbers T. They are PyTorch's, operation by operation: products are rounded before they
// are added. A value V is a vector of core/simd for the CPU, or one number T if core/cuda/kernel.h has defined
// NORMA_BACKEND. A formula gets p, the gradient and both averages, and changes the averages; p becomes the result.

#ifdef NORMA_BACKEND
#include "core/cuda/math.h"
#define NORMA_FORMULA NORMA_DEVICE
namespace norma::kernels::NORMA_BACKEND {
#else
#include "core/simd/math.h"
#define NORMA_FORMULA HWY_INLINE
HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;
#endif

template <class Step>
NORMA_FORMULA Step numbers_of(const StepItem<Step>& item) {
  return item.changing == nullptr ? item.step : *item.changing;
}

template <class T>
struct Sgd {
  bool has_velocity;
  T rate, decay, momentum, share, own, along;

  Sgd() = default;
  NORMA_FORMULA explicit Sgd(const SgdItem& item) : has_velocity(item.m != nullptr) {
    const SgdStep now = numbers_of(item);
    rate = static_cast<T>(now.rate);
    decay = static_cast<T>(now.weight_decay);
    momentum = static_cast<T>(now.momentum);
    share = static_cast<T>(now.share);
    own = static_cast<T>(now.own);
    along = static_cast<T>(now.along);
  }

  template <class V>
  NORMA_FORMULA void operator()(V& p, const V& gradient, V& velocity, V& /*unused*/) const {
    const V slope = gradient + decay * p;
    if (has_velocity) {
      velocity = momentum * velocity + share * slope;
      p = p - rate * (own * slope + along * velocity);
    } else {
      p = p - rate * slope;
    }
  }
};

template <class T>
struct AdamW {
  T beta1, rest1, beta2, rest2, eps, shrink, step_size, scale;

  AdamW() = default;
  NORMA_FORMULA explicit AdamW(const AdamWItem& item) {
    const AdamWStep now = numbers_of(item);
    beta1 = static_cast<T>(now.beta1);
    rest1 = static_cast<T>(1 - now.beta1);
    beta2 = static_cast<T>(now.beta2);
    rest2 = static_cast<T>(1 - now.beta2);
    eps = static_cast<T>(now.eps);
    shrink = static_cast<T>(now.shrink);
    step_size = static_cast<T>(now.step_size);
    scale = static_cast<T>(now.scale);
  }

  template <class V>
  NORMA_FORMULA void operator()(V& p, const V& gradient, V& mean, V& square) const {
    mean = beta1 * mean + rest1 * gradient;
    square = beta2 * square + rest2 * gradient * gradient;
    p = shrink * p - step_size * mean / (sqrt(square) * scale + eps);
  }
};

/// The direction, which lamb_move follows once its length is known.
template <class T>
struct LambDirection {
  T divisor, beta1, rest1, beta2, rest2, eps, correction1, correction2, decay;

  LambDirection() = default;
  NORMA_FORMULA explicit LambDirection(const LambItem& item)
      : divisor(item.divisor == nullptr ? T(1) : static_cast<T>(*item.divisor)) {
    const LambStep now = numbers_of(item);
    beta1 = static_cast<T>(now.beta1);
    rest1 = static_cast<T>(1 - now.beta1);
    beta2 = static_cast<T>(now.beta2);
    rest2 = static_cast<T>(1 - now.beta2);
    eps = static_cast<T>(now.eps);
    correction1 = static_cast<T>(now.correction1);
    correction2 = static_cast<T>(now.correction2);
    decay = static_cast<T>(now.weight_decay);
  }

  template <class V>
  NORMA_FORMULA void operator()(V& p, const V& gradient, V& mean, V& square) const {
    const V slope = gradient / divisor;
    mean = beta1 * mean + rest1 * slope;
    square = beta2 * square + slope * slope * rest2;
    p = mean / correction1 / (sqrt(square) / correction2 + eps) + decay * p;
  }
};

#ifdef NORMA_BACKEND
}  // namespace norma::kernels::NORMA_BACKEND
#else
}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#undef NORMA_FORMULA

#endif
