#include "nn/optim/grad_scaler.h"

#include "base/error.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "nn/optim/optimizer.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace norma::nn {

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), factor_(options.init_scale) {
  constexpr const char* kOp = "grad_scaler";
  check(std::isfinite(factor_) && factor_ > 0, kOp, "init_scale: expected a finite positive number, got {}", factor_);
  check(std::isfinite(options.growth_factor) && options.growth_factor > 1, kOp,
        "growth_factor: expected a finite number greater than 1, got {}", options.growth_factor);
  check(options.backoff_factor > 0 && options.backoff_factor < 1, kOp,
        "backoff_factor: expected a number in (0, 1), got {}", options.backoff_factor);
  check(options.growth_interval > 0, kOp, "growth_interval: expected at least 1, got {}", options.growth_interval);
}

Tensor GradScaler::scale(const Tensor& loss) const {
  check_defined("grad_scaler", "loss", loss);
  check(loss.dtype() == DType::float32 || loss.dtype() == DType::float64, "grad_scaler",
        "loss: expected float32 or float64, got {}", to_string(loss.dtype()));
  return mul(loss, factor_);
}

void GradScaler::update(bool finite) {
  if (!finite) {
    factor_ *= options_.backoff_factor;
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    // PyTorch's rule: a scale does not grow to infinity.
    const double grown = factor_ * options_.growth_factor;
    factor_ = std::isfinite(static_cast<float>(grown)) ? grown : factor_;
    growth_tracker_ = 0;
  }
}

void GradScaler::set_state(double factor, int64_t growth_tracker) {
  check(std::isfinite(factor) && factor > 0, "grad_scaler", "factor: expected a finite positive number, got {}",
        factor);
  check(growth_tracker >= 0 && growth_tracker < options_.growth_interval, "grad_scaler",
        "growth_tracker: expected a whole number from 0 to {}, got {}", options_.growth_interval - 1, growth_tracker);
  factor_ = factor;
  growth_tracker_ = growth_tracker;
}

bool gradients_are_finite(const Tensors& parameters) {
  const NoGradGuard no_grad;
  const OpPassGuard pass(OpPass::optimizer);
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty()) {
    return true;
  }
  // Squares of 32-bit numbers fit into float64. Those of large float64 numbers do not: the largest number tells.
  const std::vector<double> sums = sums_of_squares(gradients, gradients[0].device()).to_vector<double>();
  return std::equal(sums.begin(), sums.end(), gradients.begin(), [](double sum, const Tensor& gradient) {
    return std::isfinite(sum) || std::isfinite(max(abs(gradient)).item<double>());
  });
}

}  // namespace norma::nn
