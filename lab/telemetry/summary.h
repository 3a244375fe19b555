#pragma once

#include "lab/telemetry/telemetry.h"

#include <cstdint>
#include <optional>
#include <string>

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

/// How much activations grow with depth, in decibels: 20 log₁₀ of the deviation of the last norm's input over that of
/// the middle norm's, in the last sample. In a ViT these are the sums of the residual blocks behind the last block and
/// halfway; where each block adds a branch of the same variance, it is 3. None without two norms whose inputs are
/// known.
std::optional<double> activation_growth(const Telemetry& telemetry);

/// Bytes that the layers of a kind keep for the backward pass.
int64_t saved_bytes(const Telemetry& telemetry, LayerKind kind);

/// What all measurements of the sharpness took, which is no part of the training.
double seconds_of_sharpness(const Telemetry& telemetry);

}  // namespace norma::lab
