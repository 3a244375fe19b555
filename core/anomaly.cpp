#include "core/anomaly.h"

#include "core/kernels.h"

#include <fmt/format.h>

#include <cmath>

namespace norma {
namespace {

thread_local bool anomaly_enabled_ = false;

void check_finite(std::string_view op, std::string_view pass, std::string_view what, TensorList tensors,
                  std::optional<uint64_t> node) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !is_floating(tensors[i].dtype())) {
      continue;
    }
    const Tensor& x = tensors[i];
    const int64_t at = kernels::tensor_kernels.at(op, x.device())
                           ->find_not_finite(x.sizes(), x.strides(), x.dtype(), x.device_pointer());
    if (at >= 0) {
      const double value = x.to_vector<double>()[static_cast<size_t>(at)];
      throw NotFinite(fmt::format("{}: {} gave {} in {} {} ({}), element {}", op, pass,
                                  std::isnan(value) ? "NaN" : "Inf", what, i, describe(x), at),
                      node);
    }
  }
}

}  // namespace

AnomalyGuard::AnomalyGuard() : Temporarily(anomaly_enabled_, true) {}
AnomalyPause::AnomalyPause() : Temporarily(anomaly_enabled_, false) {}

bool anomaly_enabled() {
  return anomaly_enabled_;
}

void check_forward_is_finite(std::string_view op, TensorList outputs) {
  check_finite(op, "forward", "output", outputs, std::nullopt);
}

void check_backward_is_finite(std::string_view op, const Tensors& gradients, uint64_t node) {
  check_finite(op, "backward", "the gradient of input", gradients, node);
}

}  // namespace norma
