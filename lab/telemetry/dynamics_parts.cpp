#include "lab/telemetry/dynamics_parts.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace norma::lab {

namespace {

struct NamedPart {
  std::string_view name;
  bool DynamicsParts::*on;
};
constexpr std::array kParts = {
    NamedPart{"gradients", &DynamicsParts::gradients}, NamedPart{"weights", &DynamicsParts::weights},
    NamedPart{"saturation", &DynamicsParts::saturation}, NamedPart{"sharpness", &DynamicsParts::sharpness}};

}  // namespace

std::vector<std::string> dynamics_names() {
  return mapped(kParts, [](const NamedPart& part) { return std::string(part.name); });
}

std::vector<std::string> dynamics_choices() {
  std::vector<std::string> names = dynamics_names();
  names.emplace_back("all");
  return names;
}

const char* dynamics_help() {
  return "also record how the network moves, some of gradients, weights, saturation, sharpness, or all: gradient norms "
         "by depth, effective learning rates, bounded norms, the largest eigenvalue of the Hessian (docs/telemetry.md)";
}

DynamicsParts parse_dynamics(std::string_view op, std::string_view text) {
  DynamicsParts parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    bool known = false;
    for (const NamedPart& part : kParts) {
      if (word == part.name || word == "all") {
        parts.*part.on = true;
        known = true;
      }
    }
    check(known, op, "dynamics: expected some of {}, or all, got '{}'", fmt::join(dynamics_names(), ", "),
          excerpt(word));
  }
  return parts;
}

std::string to_string(const DynamicsParts& parts) {
  const auto wanted = filtered(kParts, [&](const NamedPart& part) { return parts.*part.on; });
  return fmt::format("{}", fmt::join(mapped(wanted, &NamedPart::name), ","));
}

std::vector<std::string> missing_dynamics(const Telemetry& telemetry, const DynamicsParts& parts) {
  const auto is_missing = [&](double LayerDynamics::*figure) {
    bool any = false;
    for (const HealthSample& sample : telemetry.health) {
      any = any || sample.dynamics;
      for (const LayerDynamics& layer : sample.dynamics.value_or(DynamicsSample{}).layers) {
        if (!std::isnan(layer.*figure)) {
          return false;
        }
      }
    }
    return any;
  };
  std::vector<std::string> texts;
  if (parts.weights && is_missing(&LayerDynamics::effective_lr)) {
    texts.emplace_back(
        "no effective learning rates: no norm says that it takes the scale of its input away (invariance())");
  }
  if (parts.saturation && is_missing(&LayerDynamics::saturation)) {
    texts.emplace_back("no saturation: no norm says that it is bounded (bend())");
  }
  return texts;
}

}  // namespace norma::lab
