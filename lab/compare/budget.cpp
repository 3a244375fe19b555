#include "lab/compare/comparison.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/parse_number.h"
#include "core/allocator.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "lab/bench/spread.h"
#include "lab/bench/step.h"
#include "lab/compare/timing.h"
#include "lab/report/decisions.h"
#include "nn/module_scope.h"
#include "session/environment.h"
#include "session/progress.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

namespace norma::lab {

namespace {

constexpr double kUsable = 4.0 / 5;
constexpr double kTimingShare = 0.25;
constexpr int64_t kFewestBatches = 10;
constexpr double kMinute = 60;
constexpr double kHour = 3600;

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
  const int64_t test_images = train::test_images_of(recipe, *test_set);
  const int64_t classes = test_set->info().num_classes();
  RunCost cost{.epoch = train::make_dataset(recipe, data::Split::train)->info().size};
  {
    const bench::Clock::time_point start = bench::Clock::now();
    bench::Step step({.recipe = recipe, .num_classes = classes});
    step.run();
    const double first = bench::seconds_since(start);
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

/// Seconds that all runs take with this many images each, with their trials of learning rates.
double run_seconds(const Comparison& comparison, const std::vector<RunCost>& costs, int64_t images) {
  double seconds = source_seconds(comparison, costs, images);
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    const Cell& cell = comparison.cells[i];
    seconds += seconds_of_run(comparison, cell, costs[i], images);
    const bool first = std::none_of(comparison.cells.begin(), comparison.cells.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const Cell& other) { return same_but_seed(other, cell); });
    seconds += comparison.tune_lr && first ? seconds_of_trials(comparison, cell, costs[i], images) : 0;
  }
  return seconds;
}

int64_t largest_batch(const Comparison& comparison) {
  return std::ranges::max(mapped(comparison.cells, &Cell::batch_size));
}

/// A number of images that is a whole number of batches of each size; the largest size if that would be far more.
int64_t common_batch(const Comparison& comparison) {
  constexpr int64_t kFar = 4;
  const int64_t largest = largest_batch(comparison);
  int64_t common = 1;
  for (const Cell& cell : comparison.cells) {
    common = common > kFar * largest ? common : std::lcm(common, cell.batch_size);
  }
  return common > kFar * largest ? largest : common;
}

// Rates of two cores with AVX-512, within 15 % for ResNets and ConvNeXts at 32 and 224 pixels in batches of 2 to 64.
// Only their ratios matter to the deal.
constexpr int64_t kMultiplicationsPerNanosecond = 100;
constexpr int64_t kElementsPerNanosecond = 2;
constexpr int64_t kParameterNanoseconds = 1;   // of a step: the optimizer
constexpr int64_t kLayerNanoseconds = 50'000;  // of a step: what does not grow with the batch
constexpr double kForwardAndBackward = 3;      // forward passes

/// The layers of a forward pass, and their outputs.
class Work : public nn::ModuleObserver {
 public:
  void enter(const nn::Module& /*module*/) override {}
  void leave(const nn::Module& module, const Tensor& /*input*/, const Tensor& output) override {
    if (!output.defined() || module.named_modules().size() > 1) {
      return;
    }
    ++layers;
    elements += output.numel();
  }

  int64_t layers = 0;
  int64_t elements = 0;
};

/// Nanoseconds of a network.
struct Nanoseconds {
  int64_t image = 0;  ///< forward
  int64_t step = 0;   ///< of a training step, beside its images
  int64_t half_passes_to_calibrate = 0;
};

Nanoseconds measure_work(const train::Recipe& recipe, int64_t classes) {
  constexpr int64_t kImages = 2;  // batch norm wants two where they have one pixel
  const auto model = train::make_model(recipe, classes);
  const train::Precision precision = train::precision_of(recipe);
  const Tensor images = zeros({kImages, train::kImageChannels, recipe.image_size, recipe.image_size});
  const NoGradGuard no_grad;
  const train::PrecisionScope scope(precision);
  Work work;
  const OpProfile profile;  // which has the products, attention's among them
  (*model)(train::convert_input(images, precision));
  const double flops = sum_of(profile.records(), [](const OpRecord& record) { return record.work.flops; });
  const auto multiplications = static_cast<int64_t>(flops / 2);
  const int64_t width = recipe.precision == "float64" ? 2 : 1;
  return {.image = width * (multiplications / kMultiplicationsPerNanosecond + work.elements / kElementsPerNanosecond) /
                   kImages,
          .step = width * model->parameter_count() * kParameterNanoseconds + work.layers * kLayerNanoseconds,
          .half_passes_to_calibrate = half_passes_to_calibrate(*model)};
}

/// The networks and data of a comparison, each looked at once.
class Estimate {
 public:
  explicit Estimate(const Comparison& comparison) : comparison_(comparison) {}

  /// In nanoseconds. All of them are whole numbers, so that every machine gets the same (below 2^53, and unless
  /// NORMA_ATTENTION hides products).
  RunCost cost(const Cell& cell) {
    const Nanoseconds one = of(cell);
    const Data& data = data_of(cell);
    const auto batch = static_cast<double>(cell.batch_size * one.image);
    return {.step = kForwardAndBackward * batch + static_cast<double>(one.step),
            .evaluation = static_cast<double>(data.test * one.image),
            .epoch = data.train,
            .batch = batch,
            .half_passes_to_calibrate = one.half_passes_to_calibrate};
  }
  int64_t images(const Cell& cell) {
    const train::Recipe& recipe = comparison_.recipe;
    return std::max<int64_t>(recipe.images > 0 ? recipe.images : recipe.epochs * data_of(cell).train, 1);
  }

 private:
  struct Data {
    int64_t train = 1;
    int64_t test = 0;
    int64_t classes = 0;
  };

  const Data& data_of(const Cell& cell) {
    const auto [known, is_new] = data_.try_emplace({cell.dataset, cell.option("train-images")});
    if (is_new) {
      const train::Recipe recipe = recipe_of(comparison_.recipe, cell);
      const auto test = train::make_dataset(recipe, data::Split::test);
      known->second = {.train = std::max<int64_t>(train::make_dataset(recipe, data::Split::train)->info().size, 1),
                       .test = train::test_images_of(recipe, *test),
                       .classes = test->info().num_classes()};
    }
    return known->second;
  }
  Nanoseconds of(const Cell& cell) {
    Settings key = cell;  // of cells with one network
    key.seed = 0;
    key.lr = 0;
    key.batch_size = 0;
    key.format = MemoryFormat::contiguous;
    const auto known = std::ranges::find(networks_, key, [](const auto& network) { return network.first; });
    if (known != networks_.end()) {
      return known->second;
    }
    Nanoseconds found;
    try {
      found = measure_work(recipe_of(comparison_.recipe, cell), data_of(cell).classes);
    } catch (const std::exception&) {  // it will fail when it runs
    }
    allocator(default_device()).empty_cache();
    return networks_.emplace_back(std::move(key), found).second;
  }

  const Comparison& comparison_;
  std::map<std::pair<std::string, std::string>, Data> data_;  ///< by dataset and number of training images
  std::vector<std::pair<Settings, Nanoseconds>> networks_;
};

/// For each cell the first one that it must stay with, which may be itself.
std::vector<size_t> first_of_each(const Comparison& comparison) {
  std::vector<size_t> first(comparison.cells.size());
  std::iota(first.begin(), first.end(), size_t{0});
  for (size_t i = 0; comparison.tune_lr && i < first.size(); ++i) {
    const auto same = std::ranges::find_if(comparison.cells,
                                           [&](const Cell& cell) { return same_but_seed(cell, comparison.cells[i]); });
    first[i] = static_cast<size_t>(same - comparison.cells.begin());
  }
  return first;
}

}  // namespace

double seconds_of_run(const Comparison& comparison, const Cell& cell, const RunCost& cost, int64_t images) {
  const bool each_epoch = comparison.telemetry && cost.epoch > 0;
  const auto evaluations = static_cast<double>(each_epoch ? 1 + (images - 1) / cost.epoch : 1);
  const double before = converts_norms(cell) ? cost.evaluation : 0;  // a converted network is tested before it trains
  const int64_t steps = images / cell.batch_size;
  return cost.start + conversion_seconds(cell, cost, comparison.recipe.convert_batches) + before +
         evaluations * cost.evaluation + average_seconds(cell, cost, evaluations) + cost.fit +
         static_cast<double>(steps) * cost.step;
}

double seconds_of_trials(const Comparison& comparison, const Cell& cell, const RunCost& cost, int64_t images) {
  const int64_t steps = tuning_batches(images / cell.batch_size, comparison.recipe.grad_accum_steps);
  const double trial = cost.start + conversion_seconds(cell, cost, comparison.recipe.convert_batches) +
                       static_cast<double>(steps) * cost.step;
  return static_cast<double>(tuning_factors().size()) * trial;
}

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
  int64_t fits = (kFewestBatches * largest_batch(comparison) + unit - 1) / unit;  // in units
  const double least = seconds_for(fits * unit);
  if (options.firm && least > kUsable * options.budget) {
    fail("compare",
         "budget: expected at least {:.0f}s for {} of {} images each, the shortest, got {}s; fewer runs, smaller "
         "networks or fewer --test-images take less",
         std::ceil(least / kUsable), counted(std::ssize(comparison.cells), "run"), format_count(fits * unit),
         options.budget);
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
    plan.cells.push_back(seconds_of_run(comparison, comparison.cells[i], costs[i], plan.images));
  }
  return plan;
}

void apply_plan(Comparison& comparison, const BudgetPlan& plan, double budget) {
  comparison.recipe.images = plan.images;
  comparison.timing_rounds = plan.timing_rounds;
  comparison.budget = budget;
}

std::string describe_plan(const Comparison& comparison, const BudgetPlan& plan) {
  std::string text = fmt::format("{} of {} images each: about {}", counted(std::ssize(comparison.cells), "run"),
                                 format_count(plan.images), duration_text(plan.seconds));
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

PartOf parse_part(const std::string& text) {
  const size_t slash = text.find('/');
  const auto number = [&](std::string_view digits) { return parse_number<int64_t>(digits).value_or(0); };
  const PartOf part = slash == std::string::npos ? PartOf()
                                                 : PartOf{.number = number(std::string_view(text).substr(0, slash)),
                                                          .count = number(std::string_view(text).substr(slash + 1))};
  check(part.number >= 1 && part.number <= part.count, "compare",
        "part: expected K/N with K from 1 to N, as 2/4, got '{}'", excerpt(text));
  return part;
}

std::vector<int64_t> estimate_costs(const Comparison& comparison) {
  Estimate estimate(comparison);
  const std::vector<size_t> first = first_of_each(comparison);
  std::vector<double> costs;
  for (const Cell& cell : comparison.cells) {
    const RunCost cost = estimate.cost(cell);
    const bool tries_rates = comparison.tune_lr && first[costs.size()] == costs.size();
    costs.push_back(seconds_of_run(comparison, cell, cost, estimate.images(cell)) +
                    (tries_rates ? seconds_of_trials(comparison, cell, cost, estimate.images(cell)) : 0));
  }
  const auto first_cell = [&](const auto& is_of) -> size_t {
    return static_cast<size_t>(std::ranges::find_if(comparison.cells, is_of) - comparison.cells.begin());
  };
  for (const Settings& group : groups_to_time(comparison)) {  // timed where its first cell is
    const auto is_of = [&](const Cell& cell) { return timing_group(cell) == group; };
    for (const std::string& norm : norms_of(comparison, group)) {
      const size_t cell = first_cell([&](const Cell& other) { return is_of(other) && other.norm == norm; });
      costs[first_cell(is_of)] +=
          static_cast<double>(comparison.timing_rounds) * estimate.cost(comparison.cells[cell]).step;
    }
  }
  return mapped(costs, [](double cost) { return static_cast<int64_t>(std::llround(cost)); });
}

std::vector<int64_t> deal(const Comparison& comparison, int64_t count) {
  deal(comparison, std::vector<int64_t>(comparison.cells.size(), 1), count);  // refuses too many before they cost time
  return deal(comparison, estimate_costs(comparison), count);
}

std::vector<int64_t> deal(const Comparison& comparison, const std::vector<int64_t>& costs, int64_t count) {
  const std::vector<size_t> first = first_of_each(comparison);
  std::map<size_t, int64_t> together;  // the cost of each cell with those that stay with it
  for (size_t i = 0; i < first.size(); ++i) {
    together[first[i]] += costs[i];
  }
  check(count <= static_cast<int64_t>(together.size()), "compare",
        "part: expected at most {} parts for {} {}{}, got {}", together.size(), comparison.cells.size(),
        comparison.cells.size() == 1 ? "run" : "runs",
        together.size() < first.size() ? ", as seeds share their trials of learning rates" : "", count);
  std::vector<std::pair<size_t, int64_t>> order(together.begin(), together.end());
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& item) { return item.second; });
  std::vector<std::pair<int64_t, int64_t>> loads;  // a load and its part: of equal ones the first part
  for (int64_t part = 1; part <= count; ++part) {
    loads.emplace_back(0, part);
  }
  std::vector<int64_t> parts(first.size());
  for (const auto& [cell, cost] : order) {
    auto& least = *std::ranges::min_element(loads);
    parts[cell] = least.second;
    least.first += std::max<int64_t>(cost, 1);  // so that every part gets one
  }
  for (size_t i = 0; i < first.size(); ++i) {
    parts[i] = parts[first[i]];
  }
  return parts;
}

void take_part(Comparison& comparison, const PartOf& part, const std::vector<int64_t>& dealt) {
  comparison.part_count = part.count;
  comparison.parts = {{.number = part.number,
                       .environment = comparison.environment,
                       .command = comparison.command,
                       .date = comparison.date}};
  for (size_t i = 0; i < dealt.size(); ++i) {
    if (dealt[i] != part.number) {
      comparison.cells[i].state = CellState::elsewhere;
    }
  }
}

}  // namespace norma::lab
