#pragma once

#include "lab/telemetry/telemetry.h"

#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// The parts of a DynamicsSample that are wanted.
struct DynamicsParts {
  bool gradients = false;   ///< LayerDynamics::gradient_norm
  bool weights = false;     ///< LayerDynamics::weight_norm and effective_lr
  bool saturation = false;  ///< LayerDynamics::saturation
  bool sharpness = false;   ///< DynamicsSample::sharpness, which takes far longer than a step

  [[nodiscard]] bool any() const { return gradients || weights || saturation || sharpness; }
  friend bool operator==(const DynamicsParts&, const DynamicsParts&) = default;
};

/// The names of the parts.
std::vector<std::string> dynamics_names();
/// What the option --dynamics takes: these names, and all.
std::vector<std::string> dynamics_choices();
/// The help of that option.
const char* dynamics_help();
/// "gradients,weights"; "" for none. `all` stands for all of them. Throws Error "op: dynamics: …" for another text.
DynamicsParts parse_dynamics(std::string_view op, std::string_view text);
std::string to_string(const DynamicsParts& parts);

/// "no saturation: …": what was asked for and no layer of a record with samples has, with the reason.
std::vector<std::string> missing_dynamics(const Telemetry& telemetry, const DynamicsParts& parts);

}  // namespace norma::lab
