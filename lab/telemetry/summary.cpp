#include "lab/telemetry/summary.h"

#include "base/lists.h"

#include <cmath>

namespace norma::lab {

namespace {

/// Keeps the value that is further in the direction of `sign`; ignores NaN.
void keep(std::optional<LayerFigure>& figure, double sign, const LayerHealth& layer, int64_t step, double value) {
  if (!std::isnan(value) && (!figure || sign * value > sign * figure->value)) {
    figure = {.layer = layer.layer, .step = step, .value = value};
  }
}

}  // namespace

HealthSummary summarize_health(const Telemetry& telemetry) {
  constexpr double kLeast = -1;
  constexpr double kMost = 1;
  HealthSummary summary;
  for (const HealthSample& sample : telemetry.health) {
    for (const LayerHealth& layer : sample.layers) {
      summary.non_finite += layer.output.non_finite;
      keep(summary.largest_output, kMost, layer, sample.step, layer.output.largest);
      keep(summary.most_dead_channels, kMost, layer, sample.step, layer.dead_channels);
      if (layer.gradient) {
        summary.non_finite += layer.gradient->non_finite;
        keep(summary.largest_gradient, kMost, layer, sample.step, layer.gradient->largest);
        keep(summary.smallest_gradient, kLeast, layer, sample.step, layer.gradient->deviation);
      }
      if (layer.gamma) {
        keep(summary.least_gamma, kLeast, layer, sample.step, layer.gamma->min);
        keep(summary.largest_gamma, kMost, layer, sample.step, layer.gamma->max);
      }
      if (layer.gap) {
        keep(summary.largest_gap, kMost, layer, sample.step, layer.gap->mean);
      }
    }
  }
  return summary;
}

std::optional<double> activation_growth(const Telemetry& telemetry) {
  std::vector<double> deviations;
  if (!telemetry.health.empty()) {
    for (const LayerHealth& layer : telemetry.health.back().layers) {
      if (layer.input_deviation > 0) {
        deviations.push_back(layer.input_deviation);
      }
    }
  }
  return deviations.size() < 2 ? std::nullopt
                               : std::optional(20 * std::log10(deviations.back() / deviations[deviations.size() / 2]));
}

double seconds_of_sharpness(const Telemetry& telemetry) {
  return sum_of(telemetry.health, [](const HealthSample& sample) {
    return sample.dynamics && sample.dynamics->sharpness ? sample.dynamics->sharpness->seconds : 0;
  });
}

int64_t saved_bytes(const Telemetry& telemetry, LayerKind kind) {
  return sum_of(telemetry.saved, [&](const SavedBytes& layer) { return layer.kind == kind ? layer.bytes : 0; });
}

}  // namespace norma::lab
