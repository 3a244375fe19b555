#pragma once

#include "lab/report/report.h"

#include <cmath>
#include <string>

// Comparisons that the tests of reports share.

namespace norma::test {

inline lab::Cell finished(const std::string& model, const std::string& norm, uint64_t seed, double accuracy,
                          double rate) {
  lab::Cell cell;
  cell.model = model;
  cell.norm = norm;
  cell.seed = seed;
  cell.state = lab::CellState::finished;
  cell.accuracy = accuracy;
  cell.loss = 0.5;
  cell.images_per_second = rate;
  cell.seconds = 60;
  cell.peak_bytes = 1'230'000'000;
  cell.peak_resident = 1'500'000'000;
  cell.parameters = 25'557'032;
  cell.losses = {2.5, 1.5, 0.5};
  return cell;
}

inline lab::Cell unfinished(const std::string& norm, lab::CellState state, const std::string& reason) {
  lab::Cell cell;
  cell.model = "resnet50";
  cell.norm = norm;
  cell.state = state;
  cell.reason = reason;
  return cell;
}

/// What the steps of a model's norms are timed for.
inline lab::Settings of_model(const std::string& model) {
  lab::Settings settings;
  settings.model = model;
  return lab::timing_group(settings);
}

inline lab::Comparison example() {
  lab::Comparison comparison;
  comparison.recipe.dataset = "shapes";
  comparison.recipe.images = 25600;
  comparison.environment = train::environment();
  comparison.command = "norma compare --norms 'group<7>'";
  comparison.date = "2026-11-21 14:03:07";
  comparison.cells = {finished("resnet50", "batch", 0, 0.831, 400), finished("resnet50", "group:32", 0, 0.834, 300),
                      unfinished("group:7", lab::CellState::failed, "group_norm: 7 groups, \"64\" <channels>"),
                      unfinished("instance", lab::CellState::interrupted, ""),
                      finished("convnext_atto", "layer2d", 0, 0.8, 500)};
  comparison.timing_rounds = 8;
  comparison.timings = {
      {.group = of_model("resnet50"), .norms = {"batch", "group:32", "group:7", "instance"}, .rounds = {}}};
  for (const double tax : {0.25, 0.25, 0.3, 0.2, 0.25, 0.25, 0.26, 0.24}) {
    comparison.timings[0].rounds.push_back({1, 1 / (1 - tax), NAN, 1 / (1 - (tax - 0.25))});
  }
  return comparison;
}

}  // namespace norma::test
