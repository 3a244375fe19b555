#pragma once

#include "base/error.h"
#include "base/not_copied.h"
#include "core/tensor.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace norma {

/// While it lives, every recorded op and every gradient is searched for NaN and Inf; the first one found is an Error
/// that names the op. Slow: for finding a bug.
class AnomalyGuard : Temporarily<bool> {
 public:
  AnomalyGuard();
};

bool anomaly_enabled();

/// Stops the searches of this thread while it lives: for ops whose results are not finite by design.
class AnomalyPause : Temporarily<bool> {
 public:
  AnomalyPause();
};

/// The Error that these searches throw.
class NotFinite : public Error {
 public:
  NotFinite(const std::string& text, std::optional<uint64_t> node) : Error(text), node_(node) {}
  /// Number of the op (Node::sequence) whose backward pass made the NaN or Inf; none if a forward pass did.
  [[nodiscard]] const std::optional<uint64_t>& node() const { return node_; }

 private:
  std::optional<uint64_t> node_;
};

/// Throws NotFinite "op: forward gave NaN …" if a floating output holds NaN or Inf.
void check_forward_is_finite(std::string_view op, TensorList outputs);
/// Throws NotFinite "op: backward gave NaN …" if a gradient holds NaN or Inf. `node` is the number of the op.
void check_backward_is_finite(std::string_view op, const Tensors& gradients, uint64_t node);

}  // namespace norma
