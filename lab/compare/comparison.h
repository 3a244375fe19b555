#pragma once

#include "lab/report/report.h"
#include "train/recipe.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace norma::lab {

/// What is compared, and how it is shown.
struct ComparisonOptions {
  train::Recipe
      recipe;  ///< of all cells, but for model, norm and seed; options of one family only apply to that family
  std::vector<std::string> models;
  std::vector<std::string> norms;
  std::vector<uint64_t> seeds = {0};
  /// Training steps in which a model's norms take turns, spread over the whole comparison: they show the norm tax
  /// (timing.h). 0: none.
  int64_t timing_rounds = 24;
  std::filesystem::path output;  ///< folder of the report, which is written after every cell
  std::string command = {};      ///< the command line, for the report
  int workers = 1;
  int64_t log_interval = 50;
  bool quiet = false;
};

/// The common recipe for one cell. What only the other family of networks has is left out.
train::Recipe recipe_of(const train::Recipe& common, const Cell& cell);

/// The cells of a new comparison, none of which has run: for each model each norm, for each of these each seed.
/// Throws Error for an unknown model or norm, an empty list, a value that comes twice, and a recipe that makes no
/// sense.
Comparison plan_comparison(const ComparisonOptions& options);

/// Tries all that can be known before the first step, which may be hours before the last: reads the data, and shows
/// each network that is not finished a black image or two. Writes nothing. Throws Error "compare: MODEL with norm NORM:
/// …" when a network cannot take them, and Error when the data cannot be read.
void rehearse_comparison(const Comparison& comparison);

/// Runs the cells that are not finished, one after another, until interrupted() (interrupt.h), and writes the report
/// after each; before each of them and at the end, the rounds of timing that are due. A cell that throws is noted as
/// failed with the reason, and the next one starts. Whoever calls holds the lock of the output folder (folder_lock.h).
/// Throws Error when the report cannot be written.
void run_comparison(Comparison& comparison, const ComparisonOptions& options);

/// Estimates the seconds that all cells behind `current` take that are not finished, if that one takes `seconds`: as
/// long as the finished ones of their model on average, else as long as `current` if it is of their model, else as long
/// as all of these on average.
double seconds_after(const Comparison& comparison, size_t current, double seconds);

}  // namespace norma::lab
