#include "core/anomaly.h"

#include "core/tape.h"

#include <cmath>

namespace norma {
namespace {

thread_local bool anomaly_enabled_ = false;

void check_finite(std::string_view op, std::string_view pass, std::string_view what, const Tensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !is_floating(tensors[i].dtype())) {
      continue;
    }
    const std::vector<double> values = tensors[i].to_vector<double>();
    for (size_t at = 0; at < values.size(); ++at) {
      check(std::isfinite(values[at]), op, "{} gave {} in {} {} ({}), element {}", pass,
            std::isnan(values[at]) ? "NaN" : "Inf", what, i, describe(tensors[i]), at);
    }
  }
}

}  // namespace

AnomalyGuard::AnomalyGuard() : before_(std::exchange(anomaly_enabled_, true)) {}
AnomalyGuard::~AnomalyGuard() {
  anomaly_enabled_ = before_;
}

bool anomaly_enabled() {
  return anomaly_enabled_;
}

void check_forward_is_finite(std::string_view op, const Tensors& outputs) {
  check_finite(op, "forward", "output", outputs);
}

void check_backward_is_finite(std::string_view op, const Tensors& gradients) {
  check_finite(op, "backward", "the gradient of input", gradients);
}

}  // namespace norma
