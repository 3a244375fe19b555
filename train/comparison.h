#pragma once

#include "train/recipe.h"
#include "train/report.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace norma::train {

/// What is compared, and how it is shown.
struct ComparisonOptions {
  Recipe recipe;  ///< of all cells, but for model, norm and seed; options of one family only apply to that family
  std::vector<std::string> models;
  std::vector<std::string> norms;
  std::vector<uint64_t> seeds = {0};
  std::filesystem::path output;  ///< folder of the report, which is written after every cell
  std::string command = {};      ///< the command line, for the report
  int workers = 1;
  int64_t log_interval = 50;
  bool quiet = false;
};

/// The cells of a new comparison, none of which has run: for each model each norm, for each of these each seed.
/// Throws Error for an unknown model or norm, an empty list, a value that comes twice, and a recipe that makes no
/// sense.
Comparison plan_comparison(const ComparisonOptions& options);

/// Runs the cells that are not finished, one after another, until interrupted() (interrupt.h), and writes the report
/// after each. A cell that throws is noted as failed with the reason, and the next one starts. Before the first step
/// each network sees a black image or two: throws Error "compare: MODEL with norm NORM: …" when it cannot take them.
/// Throws Error also when the data cannot be read or the report cannot be written.
void run_comparison(Comparison& comparison, const ComparisonOptions& options);

/// Estimates the seconds that all cells behind `current` take that are not finished, if that one takes `seconds`: as
/// long as the finished ones of their model on average, else as long as `current` if it is of their model, else as long
/// as all of these on average.
double seconds_after(const Comparison& comparison, size_t current, double seconds);

}  // namespace norma::train
