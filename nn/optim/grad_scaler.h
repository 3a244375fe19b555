#pragma once

#include "core/tensor.h"

#include <cstdint>

namespace norma::nn {

/// Defaults of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< steps without overflow before the scale grows
};

/// Keeps gradients of float16 from becoming 0: the loss is multiplied by a scale, so that all gradients are, and the
/// optimizer divides by it (Optimizer::set_grad_scale()). Where a gradient becomes infinite the step is left out and
/// the scale falls; after `growth_interval` steps without that it grows. As torch.amp.GradScaler (Micikevicius and
/// others, Mixed Precision Training, 2018):
///
///   scaler.scale(loss).backward();
///   optimizer.set_grad_scale(scaler.factor());
///   const bool finite = gradients_are_finite(optimizer.parameters());
///   if (finite) {
///     optimizer.step();
///   }
///   scaler.update(finite);
class GradScaler {
 public:
  /// Throws Error unless the scale is positive, growth_factor > 1, 0 < backoff_factor < 1 and growth_interval > 0.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss · factor(), on the tape. Throws Error for a dtype other than float32 and float64, in which it may not fit.
  [[nodiscard]] Tensor scale(const Tensor& loss) const;
  /// The scale of the next step.
  [[nodiscard]] double factor() const { return factor_; }
  /// Steps since the scale changed.
  [[nodiscard]] int64_t growth_tracker() const { return growth_tracker_; }
  /// After each step, left out or not.
  void update(bool finite);
  /// Goes on where another one was. Throws Error for a factor that is not finite and positive, or a negative count.
  void set_state(double factor, int64_t growth_tracker);

 private:
  GradScalerOptions options_;
  double factor_;
  int64_t growth_tracker_ = 0;
};

/// Whether no gradient of the parameters holds an infinite number or NaN. Waits for the device.
bool gradients_are_finite(const Tensors& parameters);

}  // namespace norma::nn
