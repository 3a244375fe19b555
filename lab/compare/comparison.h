#pragma once

#include "lab/report/report.h"
#include "lab/studies/study.h"
#include "parallel/process_group.h"
#include "train/recipe.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// The rule by which the learning rate follows the batch size. That of the recipe, or of its axis, is for kLrBatchSize.
enum class LrScaling : uint8_t {
  none,
  sqrt,    ///< lr * sqrt(batch / kLrBatchSize), as adaptive optimizers want it (Malladi and others, 2022)
  linear,  ///< lr * batch / kLrBatchSize, as SGD wants it (Goyal and others, 2017)
};
inline constexpr double kLrBatchSize = 128;

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
  /// Training steps in which the norms of a timing_group() take turns, spread over the whole comparison. They show the
  /// norm tax (timing.h). 0: none.
  int64_t timing_rounds = 24;
  bool telemetry = true;        ///< give each cell its record (lab/telemetry), and evaluate after each epoch
  DynamicsParts dynamics = {};  ///< the parts of HealthSample::dynamics to record
  /// Tries learning rates around the recipe's for each norm in each group before its runs (tune_rates()).
  bool tune_lr = false;
  std::filesystem::path output;             ///< folder of the report, which is written after every cell
  const train::FolderLock* lock = nullptr;  ///< lock of that folder, which must stay in its place; null: nobody checks
  std::string command = {};                 ///< the command line, for the report
  std::string study = {};                   ///< the study that has this grid (lab/studies/study.h), for the report
  std::string study_text = {};              ///< Study::text
  int workers = 1;
  int64_t log_interval = 50;
  double checkpoint_seconds = 60;  ///< between two checkpoints of a cell; 0: one before each step
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

/// Makes the missing trials of learning rates, then runs the unfinished cells one after another until
/// train::interrupted(), and writes the report after each. The rounds of timing run as they are due, before a cell or
/// at the end. A cell that was cut short goes on from its checkpoint. Cells of other parts (take_part()) do not run. A
/// cell that throws is noted as failed with the reason, and the next one starts. The caller holds the lock of the
/// output folder (session/output.h). Throws Error when the report cannot be written.
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

/// The checkpoint of a cell (a run of a comparison) in the output folder. It also has the cell's result so far.
std::filesystem::path cell_checkpoint(const std::filesystem::path& folder, size_t cell);
/// Removes it, and half-written files of it that killed processes have left. Call it when the report has the cell's
/// result.
void remove_cell_checkpoint(const std::filesystem::path& folder, size_t cell);

/// The number of training images that a cell's network is evaluated on at the end (Cell::fit): as many as there are
/// test images, at most this.
inline constexpr int64_t kMostFitImages = 2000;

/// Trains a cell, from its checkpoint if there is one that fits its recipe and these versions, and fills in its result.
/// Writes a checkpoint every ComparisonOptions::checkpoint_seconds and when train::interrupted(). Throws Error
/// as Trainer::run() does; the cell then has its record up to the failure.
void run_cell(size_t cell, Comparison& comparison, const ComparisonOptions& options, const std::string& label);

/// The factors of the recipe's learning rate in a sweep.
std::vector<double> tuning_factors();

/// Steps of each trial: a fifth of the run's, but at least 20, and at most the run's.
int64_t tuning_steps(int64_t run_steps);
/// The same number in batches; `accumulate` batches make a step.
int64_t tuning_batches(int64_t run_batches, int64_t accumulate);

/// Makes the parts of a schedule that are counted in epochs (warm-up, cool-down, time between two decays) those of a
/// run with this share of the steps. Milestones stay: they are whole epochs.
void shorten_schedule(train::Recipe& recipe, double share);

/// The mean over the last quarter of a trial's losses (rounded down, at least one). Expects a loss or more.
double final_loss(const std::vector<double>& losses);

/// Makes the trials that comparison.tunings lacks, and writes the report after each, until train::interrupted().
/// They follow their cells' recipe, with a schedule as short as they are and the first seed, and never use the test
/// images. A trial that throws, as for a loss that is not finite, is a result.
void tune_rates(Comparison& comparison, const ComparisonOptions& options);

/// True iff no trial is missing.
bool tuning_is_complete(const Comparison& comparison);

/// The share of a comparison that one machine runs: number 2 of 4.
struct PartOf {
  int64_t number = 1;  ///< from 1
  int64_t count = 0;   ///< 0: the comparison is not divided
};

/// Reads "2/4". Throws Error "compare: part: expected K/N with K from 1 to N, …".
PartOf parse_part(const std::string& text);

/// Estimates what each cell costs, with the rounds of timing and trials that its part makes because of it. It is
/// counted from the shapes in the networks, without a clock, and in whole numbers: every machine gets the same. A cell
/// whose network throws costs nothing. Networks that runs start from (make_sources()) are not counted: each part trains
/// those of its cells, and parts of about the same cost need about the same.
std::vector<int64_t> estimate_costs(const Comparison& comparison);

/// Deals the cells out to `count` parts: the most expensive ones first, each to the part that has the least so far.
/// With tune_lr, cells that differ only in the seed stay together, since they share their trials. Returns each cell's
/// part, from 1. Throws Error "compare: part: …" for more parts than there is to deal.
std::vector<int64_t> deal(const Comparison& comparison, const std::vector<int64_t>& costs, int64_t count);
/// The same by estimate_costs().
std::vector<int64_t> deal(const Comparison& comparison, int64_t count);

/// Marks the cells of other parts, which do not run here (CellState::elsewhere).
void take_part(Comparison& comparison, const PartOf& part, const std::vector<int64_t>& dealt);

/// The parts of one run's time, in seconds.
struct RunCost {
  double step = 0;        ///< a training step
  double start = 0;       ///< making the network, and the extra time of its first step
  double evaluation = 0;  ///< of all test images: at the end of each epoch, and of the run
  double fit = 0;         ///< evaluation of training images at the end of the run (Cell::fit)
  int64_t epoch = 0;      ///< training images of an epoch
  double batch = 0;       ///< a forward pass of a batch
  /// half_passes_to_calibrate() of its network.
  int64_t half_passes_to_calibrate = 0;
};

/// Measures the cost of each cell (a run of the comparison), followed by that of each of source_models(). It makes a
/// few training steps of each network on random images, and passes over a batch in evaluation. Cells that differ only
/// in seed, lr and options that change no step's work share a measurement, but not the images of an epoch. A cell that
/// throws costs nothing: it will fail.
std::vector<RunCost> measure_runs(const Comparison& comparison);

/// Seconds that one run takes with this many images.
double seconds_of_run(const Comparison& comparison, const Cell& cell, const RunCost& cost, int64_t images);
/// Seconds of its trials of learning rates.
double seconds_of_trials(const Comparison& comparison, const Cell& cell, const RunCost& cost, int64_t images);

/// The length of the runs of a comparison that fits into a time.
struct BudgetPlan {
  int64_t images = 0;         ///< in each run
  int64_t timing_rounds = 0;  ///< at most the comparison's
  double seconds = 0;         ///< expected for all of it
  std::vector<double> cells;  ///< seconds of each cell's run, without trials and timing
};

struct BudgetOptions {
  double budget;     ///< seconds
  double spent = 0;  ///< seconds of it that have passed
  bool firm = true;  ///< false: the shortest runs are taken even if they do not fit
};

/// Finds the longest runs that fit into the budget with a fifth in reserve, since a machine's speed varies. They are
/// whole batches of every batch size if possible, and at least ten batches of the largest. If timing would take more
/// than a quarter of the budget, its rounds become fewer, down to fewest_rounds(). `costs` are those of measure_runs().
/// Throws Error "compare: budget: expected at least 75s, …" when the shortest runs do not fit, if it is firm.
BudgetPlan plan_budget(const Comparison& comparison, const std::vector<RunCost>& costs, const BudgetOptions& options);

/// Puts the plan into the comparison's recipe.
void apply_plan(Comparison& comparison, const BudgetPlan& plan, double budget);

/// "6 runs of 3,840 images each: about 9 min", followed by the rounds of timing if they are fewer.
std::string describe_plan(const Comparison& comparison, const BudgetPlan& plan);

/// Seconds of "90s", "10m", "1.5h"; 0 for another text.
double parse_duration(const std::string& text);
/// The time in parse_duration()'s form, rounded up: "75s", "12m", "2.5h".
std::string duration_text(double seconds);

}  // namespace norma::lab
