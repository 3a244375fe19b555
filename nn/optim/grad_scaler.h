#pragma once

#include "core/tensor.h"

#include <cstdint>

namespace norma::nn {

/// The defaults are those of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< steps without overflow before the scale grows
};

/// Keeps gradients of float16 from becoming 0. It multiplies the loss, and so all gradients, by a scale, and the
/// optimizer divides by it (Optimizer::set_grad_scale()). If a gradient becomes infinite, the step is left out and the
/// scale falls; after `growth_interval` steps without that it grows. As torch.amp.GradScaler (Micikevicius and others,
/// Mixed Precision Training, 2018):
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

  /// loss · factor(), on the tape. Throws Error unless the loss is float32 or float64: in others it may not fit.
  [[nodiscard]] Tensor scale(const Tensor& loss) const;
  /// The scale of the next step.
  [[nodiscard]] double factor() const { return factor_; }
  /// The number of steps since the scale changed.
  [[nodiscard]] int64_t growth_tracker() const { return growth_tracker_; }
  /// Must be called after each step, also after one that was left out.
  void update(bool finite);
  /// Takes over another scaler's state. Throws Error unless the factor is finite and positive, and growth_tracker in
  /// [0, growth_interval).
  void set_state(double factor, int64_t growth_tracker);

 private:
  GradScalerOptions options_;
  double factor_;
  int64_t growth_tracker_ = 0;
};

/// True iff no gradient of the parameters holds an infinite number or NaN. Waits for the device.
bool gradients_are_finite(const Tensors& parameters);

}  // namespace norma::nn
