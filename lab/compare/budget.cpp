#include "lab/compare/budget.h"

#include "base/error.h"
#include "core/allocator.h"
#include "lab/bench/step.h"
#include "lab/compare/cell_run.h"
#include "lab/compare/source.h"
#include "lab/compare/timing.h"
#include "lab/compare/tune.h"
#include "lab/report/decide_rows.h"
#include "session/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <system_error>

namespace norma::lab {

namespace {

constexpr double kUsable = 4.0 / 5;
constexpr double kTimingShare = 0.25;
constexpr int64_t kFewestBatches = 10;
constexpr double kMinute = 60;
constexpr double kHour = 3600;

double seconds_from(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The median of a few steps.
double step_seconds(bench::Step& step) {
  constexpr int kSteps = 3;
  std::vector<double> seconds;
  for (int i = 0; i < kSteps; ++i) {
    seconds.push_back(step.run().total());
  }
  return train::median(seconds);
}

RunCost measure_run(const train::Recipe& recipe) {
  const auto test_set = train::make_dataset(recipe, data::Split::test);
  const int64_t test_images =
      recipe.test_images > 0 ? std::min(recipe.test_images, test_set->info().size) : test_set->info().size;
  const int64_t classes = test_set->info().num_classes();
  RunCost cost{.epoch = train::make_dataset(recipe, data::Split::train)->info().size};
  {
    const auto start = std::chrono::steady_clock::now();
    bench::Step step({.recipe = recipe, .num_classes = classes});
    step.run();
    const double first = seconds_from(start);
    cost.step = step_seconds(step);
    cost.start = std::max(0.0, first - cost.step);
  }
  bench::Step pass({.recipe = recipe, .num_classes = classes, .mode = bench::Mode::infer});
  const double image = step_seconds(pass) / static_cast<double>(recipe.batch_size);
  cost.evaluation = image * static_cast<double>(test_images);
  cost.batch = image * static_cast<double>(recipe.batch_size);
  cost.half_passes_to_calibrate = half_passes_to_calibrate(pass.model());
  cost.fit = image * static_cast<double>(std::min({test_images, kMostFitImages, cost.epoch}));
  return cost;
}

/// Seconds that `rounds` rounds of timing take.
double timing_seconds(const Comparison& comparison, const std::vector<RunCost>& costs, int64_t rounds) {
  if (rounds == 0) {
    return 0;
  }
  const std::vector<Settings> groups = groups_to_time(comparison);
  double seconds = 0;
  for (const Settings& group : groups) {
    std::set<std::string> norms;
    for (size_t i = 0; i < comparison.cells.size(); ++i) {
      if (timing_group(comparison.cells[i]) == group && norms.insert(comparison.cells[i].norm).second) {
        const auto visits = static_cast<double>(timing_visits(comparison.cells.size(), groups.size()));
        seconds += static_cast<double>(rounds) * costs[i].step + visits * (costs[i].start + costs[i].step);
      }
    }
  }
  return seconds;
}

/// Seconds of a conversion of norms.
double conversion_seconds(const Cell& cell, const RunCost& cost, int64_t batches) {
  const int64_t halves = half_passes_of_conversion(cell, cost.half_passes_to_calibrate);
  return static_cast<double>(halves * batches) / 2 * cost.batch;
}

/// Seconds of the evaluations of averaged weights, and of their new statistics.
double average_seconds(const Cell& cell, const RunCost& cost, double evaluations) {
  const std::string weights = cell.option(kWeights);
  return (weights.starts_with("ema") ? evaluations * cost.evaluation : 0) +
         (weights == kRecalibrated ? cost.evaluation + static_cast<double>(kRecalibrationBatches) * cost.batch : 0);
}

/// Seconds that the networks take that runs of this many images start from.
double source_seconds(const Comparison& comparison, const std::vector<RunCost>& costs, int64_t images) {
  double seconds = 0;
  size_t next = comparison.cells.size();
  for (const std::string& model : source_models(comparison)) {
    const RunCost& cost = costs.at(next++);
    const int64_t steps = kSourceRuns * images / source_recipe(comparison, model).batch_size;
    seconds += cost.start + cost.evaluation + static_cast<double>(steps) * cost.step;
  }
  return seconds;
}

/// Seconds that one run takes with this many images.
double cell_seconds(const Comparison& comparison, const Cell& cell, const RunCost& cost, int64_t images) {
  const auto evaluations = static_cast<double>(cost.epoch > 0 ? 1 + (images - 1) / cost.epoch : 1);
  const double before = converts_norms(cell) ? cost.evaluation : 0;  // a converted network is tested before it trains
  const int64_t steps = images / cell.batch_size;
  return cost.start + conversion_seconds(cell, cost, comparison.recipe.convert_batches) + before +
         evaluations * cost.evaluation + average_seconds(cell, cost, evaluations) + cost.fit +
         static_cast<double>(steps) * cost.step;
}

/// Seconds that all runs take with this many images each, with their trials of learning rates.
double run_seconds(const Comparison& comparison, const std::vector<RunCost>& costs, int64_t images) {
  double seconds = source_seconds(comparison, costs, images);
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    const Cell& cell = comparison.cells[i];
    seconds += cell_seconds(comparison, cell, costs[i], images);
    const bool first = std::none_of(comparison.cells.begin(), comparison.cells.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const Cell& other) { return same_but_seed(other, cell); });
    if (comparison.tune_lr && first) {
      const int64_t steps = tuning_batches(images / cell.batch_size, comparison.recipe.grad_accum_steps);
      const double trial = costs[i].start + conversion_seconds(cell, costs[i], comparison.recipe.convert_batches) +
                           static_cast<double>(steps) * costs[i].step;
      seconds += static_cast<double>(tuning_factors().size()) * trial;
    }
  }
  return seconds;
}

/// A number of images that is a whole number of batches of each size; the largest size if that would be far more.
int64_t common_batch(const Comparison& comparison) {
  constexpr int64_t kFar = 4;
  int64_t largest = 0;
  int64_t common = 1;
  for (const Cell& cell : comparison.cells) {
    largest = std::max(largest, cell.batch_size);
  }
  for (const Cell& cell : comparison.cells) {
    common = common > kFar * largest ? common : std::lcm(common, cell.batch_size);
  }
  return common > kFar * largest ? largest : common;
}

}  // namespace

std::vector<RunCost> measure_runs(const Comparison& comparison) {
  std::vector<RunCost> costs;
  const auto add = [&](const auto& cost_of) {
    try {
      costs.push_back(cost_of());
    } catch (const std::exception&) {  // it will fail when it runs
      costs.emplace_back();
    }
    allocator(default_device()).empty_cache();
  };
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    const auto alike = [&](size_t other) {
      return timing_group(comparison.cells[other]) == timing_group(comparison.cells[i]) &&
             comparison.cells[other].norm == comparison.cells[i].norm;
    };
    size_t known = 0;
    while (known < i && !alike(known)) {
      ++known;
    }
    add([&] {
      const train::Recipe recipe = recipe_of(comparison.recipe, comparison.cells[i]);
      if (known == i) {
        return measure_run(recipe);
      }
      RunCost cost = costs[known];
      if (comparison.cells[known].options != comparison.cells[i].options) {
        cost.epoch = train::make_dataset(recipe, data::Split::train)->info().size;
      }
      return cost;
    });
  }
  for (const std::string& model : source_models(comparison)) {
    add([&] { return measure_run(source_recipe(comparison, model)); });
  }
  return costs;
}

BudgetPlan plan_budget(const Comparison& comparison, const std::vector<RunCost>& costs, const BudgetOptions& options) {
  BudgetPlan plan{.images = 0, .timing_rounds = comparison.timing_rounds, .seconds = 0};
  const int64_t fewest = fewest_rounds(std::max<int64_t>(tax_tests(comparison), 1));
  while (plan.timing_rounds > fewest &&
         timing_seconds(comparison, costs, plan.timing_rounds) > kTimingShare * options.budget) {
    --plan.timing_rounds;
  }
  const double fixed = options.spent + timing_seconds(comparison, costs, plan.timing_rounds);
  const auto seconds_for = [&](int64_t images) { return fixed + run_seconds(comparison, costs, images); };

  const int64_t unit = common_batch(comparison);
  int64_t largest = 0;
  for (const Cell& cell : comparison.cells) {
    largest = std::max(largest, cell.batch_size);
  }
  int64_t fits = (kFewestBatches * largest + unit - 1) / unit;  // in units
  const double least = seconds_for(fits * unit);
  if (options.firm && least > kUsable * options.budget) {
    fail("compare",
         "budget: expected at least {:.0f}s for {} {} of {} images each, the shortest, got {}s; fewer runs, smaller "
         "networks or fewer --test-images take less",
         std::ceil(least / kUsable), comparison.cells.size(), comparison.cells.size() == 1 ? "run" : "runs",
         format_count(fits * unit), options.budget);
  }
  constexpr int64_t kMostImages = 1'000'000'000;  // --images takes no more
  int64_t too_many = kMostImages / unit + 1;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (seconds_for(middle * unit) <= kUsable * options.budget ? fits : too_many) = middle;
  }
  plan.images = fits * unit;
  plan.seconds = seconds_for(plan.images);
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    plan.cells.push_back(cell_seconds(comparison, comparison.cells[i], costs[i], plan.images));
  }
  return plan;
}

void apply_plan(Comparison& comparison, const BudgetPlan& plan, double budget) {
  comparison.recipe.images = plan.images;
  comparison.timing_rounds = plan.timing_rounds;
  comparison.budget = budget;
}

std::string describe_plan(const Comparison& comparison, const BudgetPlan& plan) {
  std::string text = fmt::format("{} {} of {} images each: about {}", comparison.cells.size(),
                                 comparison.cells.size() == 1 ? "run" : "runs", format_count(plan.images),
                                 duration_text(plan.seconds));
  if (!comparison.source_classes.empty()) {
    text += fmt::format(", with what they start from, which has {}", format_count(kSourceRuns * plan.images));
  }
  if (plan.timing_rounds < comparison.timing_rounds) {
    text += fmt::format("; {} rounds of timing instead of {}", plan.timing_rounds, comparison.timing_rounds);
  }
  return text;
}

double parse_duration(const std::string& text) {
  static const std::map<char, double> units = {{'s', 1}, {'m', kMinute}, {'h', kHour}};
  const auto unit = text.empty() ? units.end() : units.find(text.back());
  if (unit == units.end()) {
    return 0;
  }
  double value = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  constexpr double kLongest = 10'000 * kHour;
  const double seconds = value * unit->second;
  return error == std::errc() && stop == end && seconds > 0 && seconds <= kLongest ? seconds : 0;
}

std::string duration_text(double seconds) {
  constexpr double kSecondsUpTo = 300;
  constexpr double kMinutesUpTo = 120 * kMinute;
  if (seconds <= kSecondsUpTo) {
    return fmt::format("{}s", static_cast<int64_t>(std::ceil(seconds)));
  }
  if (seconds <= kMinutesUpTo) {
    return fmt::format("{}m", static_cast<int64_t>(std::ceil(seconds / kMinute)));
  }
  return fmt::format("{:.1f}h", std::ceil(seconds / kHour * 10) / 10);
}

}  // namespace norma::lab
