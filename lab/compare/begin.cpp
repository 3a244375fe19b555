#include "lab/compare/begin.h"

#include "base/error.h"
#include "base/input_file.h"
#include "core/parallel.h"
#include "lab/compare/budget.h"
#include "lab/compare/cell_run.h"
#include "lab/compare/source.h"
#include "lab/report/joined.h"
#include "session/environment.h"
#include "session/output.h"
#include "train/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::lab {

namespace {

/// Applies the study to the options that were not given.
void make_study(const ComparisonRequest& request, ComparisonOptions& options) {
  if (!request.has({"models"})) {
    options.models.clear();
  }
  if (!request.has({"norms"})) {
    options.norms.clear();
  }
  if (!request.has({"seeds"})) {
    options.seeds.clear();
  }
  const Study study = study_named(request.study);
  if (request.budget > 0 && !request.has({"test-images"})) {
    options.recipe.test_images = study.budget_test_images;
  }
  apply_study(study, options);
  if (request.has({"lr-scaling"})) {
    options.lr_scaling = request.options.lr_scaling;
  }
}

/// Applies `quick` to the options that were not given: small networks, and as many images as give a first page in about
/// three minutes on any machine.
void make_quick(const ComparisonRequest& request, ComparisonOptions& options, double& budget) {
  constexpr double kBudget = 165;  // seconds
  if (!request.has({"models"})) {
    options.models = {"resnet18", "convnext_atto"};
  }
  if (options.batch_sizes.empty()) {
    options.batch_sizes = {64};
  }
  if (!request.has({"test-images"})) {
    options.recipe.test_images = 1000;
  }
  if (budget == 0 && !request.has({"epochs", "images"})) {
    budget = kBudget;
  }
}

/// Chooses the length of the runs. Returns the expected seconds of each.
std::vector<double> fit_into(double budget, double spent, bool firm, Comparison& comparison) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<RunCost> costs = measure_runs(comparison);
  spent += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = budget, .spent = spent, .firm = firm});
  train::say("budget of {}: {}\n", duration_text(budget), describe_plan(comparison, plan));
  apply_plan(comparison, plan, budget);
  return plan.cells;
}

/// Results of one device say nothing of another. Older files do not name theirs.
void check_same_device(const Comparison& comparison) {
  const std::string& before = comparison.environment.device;
  const std::string now = train::device_text();
  check(before.empty() || before == now, "resume", "device: the comparison was started on {}, and cannot go on on {}",
        before, now);
}

/// Without --sync-bn the statistics of batch norms depend on the number of processes.
void check_same_processes(const Comparison& comparison, int64_t processes) {
  const int64_t before = comparison.environment.processes;
  check(before == processes, "resume",
        "procs: the comparison was started in {} process{}, and cannot go on in {}: give --procs {}", before,
        before == 1 ? "" : "es", processes, before);
}

void check_each_has_images(const Comparison& comparison, int64_t processes) {
  for (const Cell& cell : comparison.cells) {
    check(cell.batch_size >= processes, "compare",
          "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
          cell.batch_size, processes);
  }
}

/// Throws Error where the dynamics that are wanted cannot be recorded. `budget` in seconds; 0: none.
void check_dynamics(const ComparisonOptions& options, double budget) {
  if (!options.dynamics.any()) {
    return;
  }
  check(options.telemetry, "compare", "dynamics: expected telemetry, which holds them, got --no-telemetry");
  check(options.group->size() == 1, "compare", "dynamics: expected one process, got {}", options.group->size());
  check(!options.dynamics.sharpness || budget == 0, "compare",
        "dynamics: expected --images or --epochs beside sharpness, which takes longer than any budget of time knows");
}

/// The comparison in a folder that it may go on in. Throws Error if there is none, if it was merged from parts, and if
/// runs are left and the file of weights that they start from has changed.
Comparison comparison_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "results.json";
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // ten million steps
  Comparison comparison = comparison_from_json(read_text_file("resume", file, kMaxBytes), "resume: " + file.string());
  check(comparison.parts.size() < 2, "resume", "'{}' was merged from several parts: go on in the folder of each part",
        folder.string());
  const std::string& weights = comparison.recipe.initial_checkpoint;
  const bool done = std::ranges::all_of(comparison.cells, [](const Cell& cell) {  // failed ones are tried again
    return cell.state == CellState::finished || cell.state == CellState::elsewhere;
  });
  check(done || weights.empty() || initial_sha256(weights) == comparison.initial_sha256, "resume",
        "initial-checkpoint: '{}' has changed since the comparison began, so that runs would start from other weights",
        weights);
  return comparison;
}

/// Throws Error when the folder of a new comparison holds results.
void check_free(const std::filesystem::path& folder, const Comparison& comparison) {
  train::check_free("compare", folder, {"results.json", "results.csv", "report.html", "report.md"});
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    train::check_free("compare", folder, {cell_checkpoint("", i).c_str()});
  }
}

/// The comparison in a folder if it has this plan, part and budget (seconds): then it goes on there, with the length
/// that was chosen for the budget. Takes the folder's lock. None without a comparison in the folder. Throws Error for
/// any other.
std::optional<Comparison> begun_before(const Comparison& planned, const PartOf& part, double budget,
                                       const std::filesystem::path& folder, std::optional<train::FolderLock>& lock) {
  if (!train::path_exists("compare", folder / "results.json")) {
    return std::nullopt;
  }
  lock.emplace("compare", folder);  // taken before reading, since another process could add results
  std::string difference;
  try {
    Comparison there = comparison_in(folder);
    Comparison wanted = planned;
    wanted.part_count = part.count;
    if (budget > 0) {
      wanted.recipe.images = there.recipe.images;
      wanted.timing_rounds = there.timing_rounds;
    }
    difference = plan_difference(there, wanted);
    if (difference.empty() && there.budget != budget) {
      difference = fmt::format("budget {}s → {}s", there.budget, budget);
    }
    if (difference.empty() && part.count > 0 && there.parts.front().number != part.number) {
      difference = fmt::format("part {} → {}", there.parts.front().number, part.number);
    }
    if (difference.empty()) {
      return there;
    }
  } catch (const Error& error) {
    difference = error.what();
  }
  fail("compare", "'{}' holds another comparison ({}): choose another output folder", folder.string(), difference);
}

using TakeEnvironment = std::function<void(const Comparison&)>;

void go_on(const Comparison& comparison, int64_t processes, const TakeEnvironment& take_environment) {
  check_same_device(comparison);
  check_same_processes(comparison, processes);
  take_environment(comparison);
}

/// Goes on with the comparison in the folder of `resume`.
void resume(const ComparisonRequest& request, const TakeEnvironment& take_environment, BegunComparison& begun) {
  const std::set<std::string_view> may_change{"resume", "timing-rounds", "telemetry", "dynamics",
                                              "checkpoint-interval"};
  check(std::ranges::all_of(request.given, [&](const std::string& name) { return may_change.contains(name); }),
        "resume", "models, norms, seeds and recipe are those of the beginning: leave these options out");
  begun.options.output = request.resume;
  if (train::path_exists("resume", begun.options.output / "results.json")) {
    begun.lock.emplace("compare", begun.options.output);  // taken before reading, since another process could add
                                                          // results that would be lost
  }
  begun.comparison = comparison_in(begun.options.output);
  go_on(begun.comparison, request.options.group->size(), take_environment);
  if (request.has({"timing-rounds"})) {
    begun.comparison.timing_rounds = request.options.timing_rounds;
  }
  begun.goes_on = true;
}

/// Plans the comparison, or finds the one in the output folder. `budget` becomes 0 for one that goes on.
void plan(const ComparisonRequest& request, const TakeEnvironment& take_environment, BegunComparison& begun,
          double& budget) {
  ComparisonOptions& options = begun.options;
  const int64_t processes = options.group->size();
  if (!request.study.empty()) {
    make_study(request, options);
  }
  if (request.quick) {
    make_quick(request, options, budget);
  }
  begun.comparison = plan_comparison(options);
  begun.comparison.environment.processes = processes;
  for (const std::string& text : without_effect(begun.comparison, request.given_recipe_options())) {
    train::warn("compare", "{}", text);
  }
  check(request.part.count == 0 || budget == 0, "compare",
        "part: expected runs of one length in all parts, by --images or --epochs, got a budget of time");
  check(processes == 1 || budget == 0, "compare",
        "procs: expected --images or --epochs beside it, since one process alone cannot measure what fits into a "
        "budget of time");
  if (std::optional<Comparison> there =
          begun_before(begun.comparison, request.part, budget, options.output, begun.lock)) {
    begun.comparison = std::move(*there);
    go_on(begun.comparison, processes, take_environment);
    budget = 0;
    begun.goes_on = true;
  } else {
    check_free(options.output, begun.comparison);
  }
}

void print_precision_notes(const Comparison& comparison) {
  std::set<std::string> seen;
  for (const Cell& cell : comparison.cells) {
    if (seen.insert(cell.precision).second) {
      const train::Precision precision = train::precision_of(recipe_of(comparison.recipe, cell));
      const std::string text = train::precision_note(precision, default_device());
      train::say("{}{}", text, text.empty() ? "" : "\n");
    }
  }
}

/// "6 runs", "part 2 of 3: 2 of 6 runs". `dealt` are the parts of the cells of a comparison that begins.
std::string runs_text(const Comparison& comparison, const PartOf& part, const std::vector<int64_t>& dealt) {
  const size_t all = comparison.cells.size();
  const std::string text = fmt::format("{} {}", all, all == 1 ? "run" : "runs");
  if (part.count == 0 && comparison.part_count == 0) {
    return text;
  }
  const bool divided = comparison.part_count > 0;
  const auto here = divided ? std::ranges::count_if(comparison.cells, is_here) : std::ranges::count(dealt, part.number);
  return fmt::format("part {} of {}: {} of {}", divided ? comparison.parts.front().number : part.number,
                     divided ? comparison.part_count : part.count, here, text);
}

/// The threads of this process and the number of all.
std::string threads_text(int64_t processes) {
  train::Environment here;
  here.threads = num_threads();
  here.processes = processes;
  return train::threads_text(here);
}

}  // namespace

void begin_comparison(const ComparisonRequest& request, const TakeEnvironment& take_environment,
                      BegunComparison& begun) {
  const auto start = std::chrono::steady_clock::now();
  Comparison& comparison = begun.comparison;
  ComparisonOptions& options = begun.options = request.options;
  std::erase_if(options.options, [](const auto& axis) { return axis.second.empty(); });
  const int64_t processes = options.group->size();
  double budget = request.budget;
  if (request.resume.empty()) {
    plan(request, take_environment, begun, budget);
  } else {
    resume(request, take_environment, begun);
  }
  check_each_has_images(comparison, processes);
  if (begun.goes_on) {
    options.telemetry = request.has({"telemetry"}) ? options.telemetry : comparison.telemetry;
    comparison.telemetry = options.telemetry;
    options.dynamics = request.has({"dynamics"}) ? options.dynamics : comparison.dynamics;
    comparison.dynamics = options.dynamics;
  }
  check_dynamics(options, budget);
  print_precision_notes(comparison);
  const bool divides = !begun.goes_on && request.part.count > 0;
  const std::vector<int64_t> dealt =
      divides ? deal(comparison, request.part.count) : std::vector<int64_t>(comparison.cells.size(), 0);
  rehearse_comparison(comparison);  // before a word is said, so that a mistake is one line
  train::say("{} on {} at {}x{}, {}; the report grows in {}\n", runs_text(comparison, request.part, dealt),
             values_of(comparison, "dataset"), comparison.recipe.image_size, comparison.recipe.image_size,
             threads_text(processes), options.output.string());
  if (divides) {  // only now: all parts find the same mistakes
    take_part(comparison, request.part, dealt);
  }
  if (budget > 0) {
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    options.expected_seconds = fit_into(budget, spent, /* firm= */ request.budget > 0, comparison);
  }
  if (!begun.lock) {  // only now, so that a mistake leaves no folder
    train::make_output_folder("compare", options.output);
    begun.lock.emplace("compare", options.output);
    check_free(options.output, comparison);  // another process may have written since
  }
  options.lock = &*begun.lock;
}

bool any_in_state(const Comparison& comparison, std::initializer_list<CellState> states) {
  return std::ranges::any_of(comparison.cells,
                             [&](const Cell& cell) { return std::ranges::find(states, cell.state) != states.end(); });
}

}  // namespace norma::lab
