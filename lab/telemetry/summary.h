#pragma once

#include "lab/telemetry/telemetry.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A figure, its layer and its step.
struct LayerFigure {
  std::string layer;
  int64_t step = 0;
  double value = 0;
};

/// The extremes over a record's layers and steps; none if no layer has the figure.
struct HealthSummary {
  std::optional<LayerFigure> largest_output;      ///< largest absolute value
  std::optional<LayerFigure> largest_gradient;    ///< largest absolute value
  std::optional<LayerFigure> smallest_gradient;   ///< least standard deviation of a gradient
  std::optional<LayerFigure> most_dead_channels;  ///< share of channels
  std::optional<LayerFigure> least_gamma;
  std::optional<LayerFigure> largest_gamma;
  std::optional<LayerFigure> largest_gap;  ///< of a batch norm's means: BatchGap::mean
  int64_t non_finite = 0;                  ///< elements of outputs and gradients, over all layers and looks
};

HealthSummary summarize_health(const Telemetry& telemetry);

/// Bytes that the layers of a kind keep for the backward pass.
int64_t saved_bytes(const Telemetry& telemetry, LayerKind kind);

/// What all measurements of the sharpness took, which is no part of the training.
double seconds_of_sharpness(const Telemetry& telemetry);

}  // namespace norma::lab
