#pragma once

#include "lab/report/report.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::lab {

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
