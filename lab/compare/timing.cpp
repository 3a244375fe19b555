#include "lab/compare/timing.h"

#include "core/allocator.h"
#include "lab/bench/step.h"
#include "lab/bench/turn_order.h"
#include "lab/compare/comparison.h"
#include "train/interrupt.h"
#include "train/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace norma::lab {

namespace {

std::vector<std::string> models_to_time(const Comparison& comparison) {
  std::vector<std::string> models;
  for (const Cell& cell : comparison.cells) {
    if (std::find(models.begin(), models.end(), cell.model) == models.end() && can_be_timed(comparison, cell.model)) {
      models.push_back(cell.model);
    }
  }
  return models;
}

Timing& timing_of(Comparison& comparison, const std::string& model) {
  for (Timing& timing : comparison.timings) {
    if (timing.model == model) {
      return timing;
    }
  }
  comparison.timings.push_back({.model = model, .norms = norms_of(comparison, model), .rounds = {}, .problem = {}});
  return comparison.timings.back();
}

const Cell& first_cell(const Comparison& comparison, const std::string& model, const std::string& norm) {
  return *std::find_if(comparison.cells.begin(), comparison.cells.end(),
                       [&](const Cell& cell) { return cell.model == model && cell.norm == norm; });
}

/// Networks that take turns. One that throws is dropped, with the reason in the timing.
class Turns {
 public:
  Turns(const Comparison& comparison, Timing& timing, const TimingOptions& options) : timing_(timing) {
    for (const std::string& norm : timing.norms) {
      steps_.push_back(nullptr);
      guarded(steps_.size() - 1, [&] {
        const Cell& cell = first_cell(comparison, timing.model, norm);
        steps_.back() = std::make_unique<bench::Step>(bench::StepOptions{.recipe = recipe_of(comparison.recipe, cell),
                                                                         .num_classes = options.num_classes,
                                                                         .images = options.batch->images,
                                                                         .labels = options.batch->labels});
        if (!train::interrupted()) {
          steps_.back()->run();  // not timed: memory and plans are made
        }
      });
    }
  }

  /// False where a signal came first.
  bool round() {
    std::vector<double> seconds(steps_.size(), std::numeric_limits<double>::quiet_NaN());
    for (const size_t norm : bench::turn_order(steps_.size(), timing_.rounds.size())) {
      if (train::interrupted()) {
        return false;
      }
      guarded(norm, [&] {
        if (steps_[norm] != nullptr) {
          seconds[norm] = steps_[norm]->run().total();
        }
      });
    }
    timing_.rounds.push_back(std::move(seconds));
    return true;
  }

 private:
  template <class F>
  void guarded(size_t norm, F&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      steps_[norm].reset();
      timing_.problem = fmt::format("{}: {}", timing_.norms[norm], e.what());
    }
  }

  Timing& timing_;
  std::vector<std::unique_ptr<bench::Step>> steps_;
};

}  // namespace

bool can_be_timed(const Comparison& comparison, std::string_view model) {
  const std::vector<std::string> norms = norms_of(comparison, model);
  return norms.size() > 1 && !reference_of(norms).empty();
}

void time_norms(Comparison& comparison, int64_t due, const TimingOptions& options) {
  for (const std::string& model : models_to_time(comparison)) {
    Timing& timing = timing_of(comparison, model);
    const int64_t missing = due - static_cast<int64_t>(timing.rounds.size());
    if (missing <= 0 || train::interrupted()) {
      continue;
    }
    if (!options.quiet) {
      train::say("[timing] {}: {} norms take turns, {} {}\n", model, timing.norms.size(), missing,
                 missing == 1 ? "round" : "rounds");
    }
    {
      Turns turns(comparison, timing, options);
      for (int64_t i = 0; i < missing && turns.round(); ++i) {
      }
    }
    allocator(default_device()).empty_cache();
  }
}

bool timing_is_complete(const Comparison& comparison) {
  const std::vector<std::string> models = models_to_time(comparison);
  return std::all_of(models.begin(), models.end(), [&](const std::string& model) {
    return comparison.timing_rounds == 0 ||
           std::any_of(comparison.timings.begin(), comparison.timings.end(), [&](const Timing& timing) {
             return timing.model == model && static_cast<int64_t>(timing.rounds.size()) >= comparison.timing_rounds;
           });
  });
}

}  // namespace norma::lab
