#pragma once

#include "lab/report/report.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::lab {

/// What one run of a comparison takes, in seconds.
struct RunCost {
  double step = 0;        ///< a training step
  double start = 0;       ///< making the network, and what only its first step does
  double evaluation = 0;  ///< of all test images: at the end of each epoch, and of the run
  int64_t epoch = 0;      ///< training images of an epoch
};

/// Makes a few training steps of each cell's network on random images, and a pass over a batch in evaluation, and says
/// what the cells will take; cells that differ in seed and lr alone share a measurement. A cell that throws costs
/// nothing: it will fail.
std::vector<RunCost> measure_runs(const Comparison& comparison);

/// How long the runs of a comparison are, so that all of it fits into a time.
struct BudgetPlan {
  int64_t images = 0;         ///< of each run
  int64_t timing_rounds = 0;  ///< at most those of the comparison
  double seconds = 0;         ///< that all is expected to take
  std::vector<double> cells;  ///< seconds of each cell's run, without trials and timing
};

struct BudgetOptions {
  double budget;     ///< seconds
  double spent = 0;  ///< those of them that are over
  bool firm = true;  ///< false: where the shortest runs do not fit, they are taken nevertheless
};

/// The longest runs that fit into the budget with a seventh to spare: a machine is not always as fast. They are
/// whole batches of every batch size where that is possible, and ten batches of the largest at least. Rounds of timing
/// take a quarter of the budget at most, and become fewer where they would not: fewest_rounds() at least, if there are
/// any. `costs` are of the cells, one by one. Throws Error "compare: budget: expected at least 75s, …" where the
/// shortest runs do not fit, if it is firm.
BudgetPlan plan_budget(const Comparison& comparison, const std::vector<RunCost>& costs, const BudgetOptions& options);

/// Makes the plan the recipe of the comparison.
void apply_plan(Comparison& comparison, const BudgetPlan& plan, double budget);

/// "6 runs of 3,840 images each: about 9 min", with fewer rounds of timing behind it.
std::string describe_plan(const Comparison& comparison, const BudgetPlan& plan);

/// Seconds of "90s", "10m", "1.5h"; 0 for another text.
double parse_duration(const std::string& text);
/// Rounded up, as parse_duration() reads it: "75s", "12m", "2.5h".
std::string duration_text(double seconds);

}  // namespace norma::lab
