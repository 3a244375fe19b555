#pragma once

#include "lab/report/report.h"
#include "train/recipe.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// How the learning rate follows the batch size.
enum class LrScaling : uint8_t {
  none,
  sqrt,    ///< lr * sqrt(batch / lr_batch_size), as adaptive optimizers want it (Malladi and others, 2022)
  linear,  ///< lr * batch / lr_batch_size, as SGD wants it (Goyal and others, 2017)
};

std::string_view to_string(LrScaling scaling);
/// Throws Error for an unknown name.
LrScaling lr_scaling_from_string(const std::string& name);

/// What is compared, and how it is shown.
struct ComparisonOptions {
  /// Of all cells, but for the axes; options of one family only apply to that family.
  train::Recipe recipe;
  std::vector<std::string> models;
  std::vector<std::string> norms;
  std::vector<uint64_t> seeds = {0};
  // The further axes; an empty one has the recipe's value.
  std::vector<int64_t> batch_sizes = {};
  std::vector<double> lrs = {};
  std::vector<std::string> precisions = {};
  std::vector<MemoryFormat> formats = {};
  std::vector<std::string> datasets = {};
  LrScaling lr_scaling = LrScaling::none;
  int64_t lr_batch_size = 128;  ///< the batch size that the recipe's lr, or the axis', is for
  /// Training steps in which the norms of a timing_group() take turns, spread over the whole comparison: they show the
  /// norm tax (timing.h). 0: none.
  int64_t timing_rounds = 24;
  bool telemetry = true;  ///< give each cell its record (lab/telemetry), and evaluate after each epoch
  /// Tries learning rates around the recipe's for each norm in each group before its runs (tune.h).
  bool tune_lr = false;
  std::filesystem::path output;             ///< folder of the report, which is written after every cell
  const train::FolderLock* lock = nullptr;  ///< of that folder, which must stay where it is; none: nobody looks
  std::string command = {};                 ///< the command line, for the report
  int workers = 1;
  int64_t log_interval = 50;
  bool quiet = false;
  /// Seconds that the cells' runs are expected to take, one by one (BudgetPlan::cells), for the time left.
  std::vector<double> expected_seconds = {};
};

/// The cells of a new comparison, none of which has run: for each model each dataset, batch size, lr, precision and
/// format, for each of these each norm, for each of these each seed. They start from the same weights, as far as their
/// networks have the same, and see the same images in the same order, however many of them are in a batch.
/// Throws Error for an unknown model, norm, precision or dataset, no models, norms or seeds, a value that comes twice,
/// and a recipe that makes no sense.
Comparison plan_comparison(const ComparisonOptions& options);

/// train::without_effect(), of what has none in any cell.
std::vector<std::string> without_effect(const Comparison& comparison, const std::vector<std::string>& given = {});

/// Tries all that can be known before the first step, which may be hours before the last: reads the data, and shows
/// each network that is not finished a black image or two. Writes nothing. Throws Error "compare: MODEL with norm NORM:
/// …" when a network cannot take them in any of its cells, "compare: precision bfloat16: …" when no network can with a
/// value of a further axis, and Error when the data cannot be read. What only some combinations refuse is found out
/// again by their cells, which fail.
void rehearse_comparison(const Comparison& comparison);

/// Makes the trials of learning rates that are missing, then runs the cells that are not finished, one after another,
/// until interrupted() (interrupt.h), and writes the report after each; before each of them and at the end, the rounds
/// of timing that are due. A cell that throws is noted as failed with the reason, and the next one starts. Whoever
/// calls holds the lock of the output folder (folder_lock.h). Throws Error when the report cannot be written.
void run_comparison(Comparison& comparison, const ComparisonOptions& options);

/// Estimates the seconds that all cells behind `current` take that are not finished, if that one takes `seconds`. With
/// `expected` seconds of each cell: these, times what `current` and the finished ones took beside theirs. Without: as
/// long as the finished ones of their model on average, else as long as `current` if it is of their model, else as long
/// as all of these on average.
double seconds_after(const Comparison& comparison, size_t current, double seconds,
                     const std::vector<double>& expected = {});

}  // namespace norma::lab
