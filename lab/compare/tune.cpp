#include "lab/compare/comparison.h"

#include "base/excerpt.h"
#include "core/allocator.h"
#include "lab/compare/timing.h"
#include "session/output.h"
#include "session/trainer.h"
#include "train/processes.h"
#include "train/training_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>

namespace norma::lab {

namespace {

/// One cell for each set of cells that differ only in the seed.
std::vector<const Cell*> cells_to_tune(const Comparison& comparison) {
  std::vector<const Cell*> cells;
  for (const Cell& cell : comparison.cells) {
    if (is_here(cell) && std::ranges::none_of(cells, [&](const Cell* other) { return same_but_seed(*other, cell); })) {
      cells.push_back(&cell);
    }
  }
  return cells;
}

Trial try_rate(const Comparison& comparison, const Settings& settings, double factor, const ComparisonOptions& options,
               const std::string& label) {
  train::Recipe recipe = with_source(recipe_of(comparison.recipe, settings), comparison, options);
  recipe.lr *= factor;
  Trial trial{.lr = recipe.lr};
  try {
    std::optional<train::Trainer> trainer;
    train::do_together(*options.group, [&] {
      if (options.group->size() > 1) {
        rehearse_cell(comparison, settings);
      }
      train::StepPlan plan = train::plan_of(recipe, train::make_dataset(recipe, data::Split::train));
      const auto run_steps = static_cast<double>(plan.total_steps());
      plan.total_batches = tuning_batches(plan.total_batches, plan.accumulate);
      recipe.images = plan.total_batches * recipe.batch_size;
      shorten_schedule(recipe, static_cast<double>(plan.total_steps()) / run_steps);
      trainer.emplace(recipe, train::TrainerOptions{.output = {},
                                                    .workers = options.workers,
                                                    .log_interval = options.log_interval,
                                                    .evaluate = false,
                                                    .quiet = options.quiet,
                                                    .label = label,
                                                    .group = options.group});
    });
    const train::TrainResult result = trainer->run();
    if (result.finished) {
      const double loss = final_loss(result.losses);
      if (std::isfinite(loss)) {
        trial.loss = loss;
      } else {
        trial.reason = "a step near its end was left out, as its loss is not finite";
      }
    }
  } catch (const std::exception& e) {
    train::rethrow_unless_agreed(*options.group);
    trial.reason = plain_text(e.what());
  }
  allocator(default_device()).empty_cache();
  return trial;
}

}  // namespace

std::vector<double> tuning_factors() {
  return {0.25, 0.5, 1, 2, 4};
}

int64_t tuning_steps(int64_t run_steps) {
  constexpr int64_t kShare = 5;
  constexpr int64_t kFewest = 20;
  return std::min(run_steps, std::max(kFewest, run_steps / kShare));
}

int64_t tuning_batches(int64_t run_batches, int64_t accumulate) {
  const int64_t run_steps = (run_batches + accumulate - 1) / accumulate;
  return std::min(run_batches, tuning_steps(run_steps) * accumulate);
}

void shorten_schedule(train::Recipe& recipe, double share) {
  recipe.warmup_epochs *= share;
  recipe.cooldown_epochs *= share;
  recipe.decay_epochs *= share;
}

double final_loss(const std::vector<double>& losses) {
  constexpr size_t kShare = 4;
  const size_t count = std::max<size_t>(losses.size() / kShare, 1);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

void tune_rates(Comparison& comparison, const ComparisonOptions& options) {
  if (!comparison.tune_lr) {
    return;
  }
  const std::vector<double> factors = tuning_factors();
  const std::vector<const Cell*> cells = cells_to_tune(comparison);
  for (size_t i = 0; i < cells.size(); ++i) {
    if (tuning_of(comparison, *cells[i]) == nullptr) {
      comparison.tunings.push_back({.settings = *cells[i], .trials = {}});
    }
    Tuning& tuning =
        comparison.tunings[static_cast<size_t>(tuning_of(comparison, *cells[i]) - comparison.tunings.data())];
    while (tuning.trials.size() < factors.size()) {
      const double factor = factors[tuning.trials.size()];
      const std::string label = fmt::format(
          "[tuning {}/{}] {} {}, lr {}", i * factors.size() + tuning.trials.size() + 1, cells.size() * factors.size(),
          group_label(comparison, tuning.settings), train::norm_label(tuning.settings.norm, comparison.recipe),
          recipe_of(comparison.recipe, tuning.settings).lr * factor);
      Trial trial = try_rate(comparison, tuning.settings, factor, options, label);
      if (train::interrupted()) {
        return;  // an interrupted trial does not count
      }
      if (!options.quiet) {
        train::say("{}  {}\n", label, trial.loss ? fmt::format("loss {:.4f}", *trial.loss) : "failed: " + trial.reason);
      }
      tuning.trials.push_back(std::move(trial));
      train::do_in_first(*options.group, [&] { write_report(comparison, options.output, options.lock); });
    }
  }
}

bool tuning_is_complete(const Comparison& comparison) {
  const std::vector<const Cell*> cells = cells_to_tune(comparison);
  return !comparison.tune_lr || std::ranges::all_of(cells, [&](const Cell* cell) {
    const Tuning* tuning = tuning_of(comparison, *cell);
    return tuning != nullptr && tuning->trials.size() >= tuning_factors().size();
  });
}

}  // namespace norma::lab
