#pragma once

#include "lab/report/report.h"
#include "lab/studies/study.h"
#include "parallel/process_group.h"
#include "train/recipe.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// The rule by which the learning rate follows the batch size.
enum class LrScaling : uint8_t {
  none,
  sqrt,    ///< lr * sqrt(batch / lr_batch_size), as adaptive optimizers want it (Malladi and others, 2022)
  linear,  ///< lr * batch / lr_batch_size, as SGD wants it (Goyal and others, 2017)
};

std::string_view to_string(LrScaling scaling);
/// Throws Error for an unknown name.
LrScaling lr_scaling_from_string(const std::string& name);

/// The settings and the output of a comparison. A cell is one of its runs (lab/report/report.h).
struct ComparisonOptions {
  /// The settings of all cells, except the axes. An option of one family of networks applies to that family alone.
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
  std::map<std::string, std::vector<std::string>> options = {};  ///< values on option_axes(), by the option's name
  LrScaling lr_scaling = LrScaling::none;
  int64_t lr_batch_size = 128;  ///< the batch size that the lr of the recipe, or of its axis, is for
  /// Training steps in which the norms of a timing_group() take turns, spread over the whole comparison. They show the
  /// norm tax (timing.h). 0: none.
  int64_t timing_rounds = 24;
  bool telemetry = true;        ///< give each cell its record (lab/telemetry), and evaluate after each epoch
  DynamicsParts dynamics = {};  ///< the parts of HealthSample::dynamics to record
  /// Tries learning rates around the recipe's for each norm in each group before its runs (tune.h).
  bool tune_lr = false;
  std::filesystem::path output;             ///< folder of the report, which is written after every cell
  const train::FolderLock* lock = nullptr;  ///< lock of that folder, which must stay in its place; null: nobody checks
  std::string command = {};                 ///< the command line, for the report
  std::string study = {};                   ///< the study that has this grid (lab/studies/study.h), for the report
  std::string study_text = {};              ///< Study::text
  int workers = 1;
  int64_t log_interval = 50;
  double checkpoint_seconds = 60;  ///< between two checkpoints of a cell (cell_run.h); 0: one before each step
  bool quiet = false;
  /// Expected seconds of each cell's run (BudgetPlan::cells), for the time left.
  std::vector<double> expected_seconds = {};
  /// The processes that train each cell. All have the same comparison and the same output folder, where the first alone
  /// writes.
  std::shared_ptr<parallel::ProcessGroup> group = parallel::make_single_group();
};

/// The cells of a new comparison, none of which has run. They are ordered by model, then by dataset, batch size, lr,
/// precision, format and option_axes(), then by norm, then by seed. Cells start from the same weights, as far as their
/// networks share them, and see the same images in the same order, whatever their batch size. Throws Error for an
/// unknown model, norm, precision or dataset, no models, norms or seeds, a value that comes twice, and an invalid
/// recipe.
Comparison plan_comparison(const ComparisonOptions& options);

/// Fills the empty models, norms, seeds and axes of `options` with a study's values, and its classes unless runs start
/// from a file. Sets the scaling of the learning rate, the study's name and its text.
void apply_study(const Study& study, ComparisonOptions& options);

/// The options without effect in any cell; see train::without_effect().
std::vector<std::string> without_effect(const Comparison& comparison, const std::vector<std::string>& given = {});

/// Finds errors before the first step, which may be hours before the last. It reads the data and gives each unfinished
/// network a black image or two. Writes nothing. Throws Error "compare: MODEL with norm NORM: …" when a network fails
/// in all its cells, "compare: precision bfloat16: …" when all networks fail with a value of a further axis, and Error
/// when the data cannot be read. If only some combinations fail, their cells fail when they run.
void rehearse_comparison(const Comparison& comparison);
/// The same for one cell: throws its Error.
void rehearse_cell(const Comparison& comparison, const Settings& cell);

/// Makes the missing trials of learning rates, then runs the unfinished cells one after another until interrupted()
/// (interrupt.h), and writes the report after each. The rounds of timing run as they are due, before a cell or at the
/// end. A cell that was cut short goes on from its checkpoint. Cells of other parts (deal.h) do not run. A cell that
/// throws is noted as failed with the reason, and the next one starts. The caller holds the lock of the output folder
/// (session/output.h). Throws Error when the report cannot be written.
///
/// All processes of a group call it. The first process alone times the norms, and decides for all. With several, each
/// cell begins with a rehearsal. A cell counts as failed if all processes fail alike (train::AgreedError), there or by
/// a loss that is not finite. Any other error is thrown.
void run_comparison(Comparison& comparison, const ComparisonOptions& options);

/// Estimates the seconds of all unfinished cells after `current`, if `current` takes `seconds`. With `expected` seconds
/// of each cell, it scales these by the pace of `current` and the finished cells. Without, a cell takes the mean of the
/// finished cells of its timing_group(), or the time of `current` if that is of the group. If neither exists, the same
/// is tried for its model; else it takes the mean of all these.
double seconds_after(const Comparison& comparison, size_t current, double seconds,
                     const std::vector<double>& expected = {});

}  // namespace norma::lab
