#include "lab/compare/timing.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "core/allocator.h"
#include "lab/bench/spread.h"
#include "lab/bench/step.h"
#include "lab/report/decisions.h"
#include "session/interrupt.h"
#include "session/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>

namespace norma::lab {

namespace {

Timing& begun_timing(Comparison& comparison, const Settings& group) {
  if (timing_of(comparison, group) == nullptr) {
    comparison.timings.push_back({.group = group, .norms = norms_of(comparison, group), .rounds = {}, .problem = {}});
  }
  return *std::ranges::find(comparison.timings, group, &Timing::group);
}

const Cell& first_cell(const Comparison& comparison, const Settings& group, const std::string& norm) {
  return *std::ranges::find_if(comparison.cells,
                               [&](const Cell& cell) { return timing_group(cell) == group && cell.norm == norm; });
}

/// The rounds that group `group` of `groups` must have before a cell of `cells`.
int64_t rounds_due(int64_t rounds, size_t cell, size_t cells, size_t group, size_t groups) {
  const size_t moments = cells + 1;
  const size_t visits = timing_visits(cells, groups);
  const size_t shift = group * moments / groups;  // so that groups are visited at different moments
  const size_t visit = std::min(visits, ((cell + 1) * visits + shift) / moments);
  return rounds * static_cast<int64_t>(visit) / static_cast<int64_t>(visits);
}

/// Networks that take turns. A network that throws is dropped, with the reason in the timing.
class Turns {
 public:
  Turns(const Comparison& comparison, Timing& timing, const TimingImages& images) : timing_(timing) {
    for (const std::string& norm : timing.norms) {
      steps_.push_back(nullptr);
      guarded(steps_.size() - 1, [&] {
        const Cell& cell = first_cell(comparison, timing.group, norm);
        steps_.back() = std::make_unique<bench::Step>(bench::StepOptions{.recipe = recipe_of(comparison.recipe, cell),
                                                                         .num_classes = images.num_classes,
                                                                         .images = images.batch.images,
                                                                         .labels = images.batch.labels});
        if (!train::interrupted()) {
          steps_.back()->run();  // not timed: memory and plans are made
        }
      });
    }
  }

  /// Runs a round; false if a signal came first.
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
      timing_.problem = fmt::format("{}: {}", timing_.norms[norm], plain_text(e.what()));
    }
  }

  Timing& timing_;
  std::vector<std::unique_ptr<bench::Step>> steps_;
};

}  // namespace

bool can_be_timed(const Comparison& comparison, const Settings& group) {
  const std::vector<std::string> norms = norms_of(comparison, group);
  return norms.size() > 1 && !reference_of(norms).empty();
}

std::vector<Settings> groups_to_time(const Comparison& comparison) {
  std::vector<Settings> seen;
  std::vector<Settings> groups;
  for (const Cell& cell : comparison.cells) {
    const Settings group = timing_group(cell);
    if (add_once(seen, group) && is_here(cell) && can_be_timed(comparison, group)) {
      groups.push_back(group);
    }
  }
  return groups;
}

size_t timing_visits(size_t cells, size_t groups) {
  constexpr size_t kFewest = 4;
  const size_t moments = cells + 1;
  return std::min(moments, std::max(kFewest, moments / groups));
}

void time_norms(Comparison& comparison, size_t cell, const TimingOptions& options) {
  const std::vector<Settings> groups = groups_to_time(comparison);
  for (size_t i = 0; i < groups.size(); ++i) {
    Timing& timing = begun_timing(comparison, groups[i]);
    const int64_t due = rounds_due(comparison.timing_rounds, cell, comparison.cells.size(), i, groups.size());
    const int64_t missing = due - static_cast<int64_t>(timing.rounds.size());
    if (missing <= 0 || train::interrupted()) {
      continue;
    }
    if (!options.quiet) {
      train::say("[timing] {}: {} norms take turns, {}\n", group_label(comparison, groups[i]), timing.norms.size(),
                 counted(missing, "round"));
    }
    try {
      const Cell& any = first_cell(comparison, groups[i], timing.norms.front());
      const TimingImages images = options.images(recipe_of(comparison.recipe, any));
      Turns turns(comparison, timing, images);
      for (int64_t round = 0; round < missing && turns.round(); ++round) {
      }
    } catch (const std::exception& e) {  // no batch of this size, or no memory for it
      timing.problem = plain_text(e.what());
      const std::vector<double> none(timing.norms.size(), std::numeric_limits<double>::quiet_NaN());
      timing.rounds.resize(static_cast<size_t>(due), none);
    }
    allocator(default_device()).empty_cache();
  }
}

bool timing_is_complete(const Comparison& comparison) {
  return comparison.timing_rounds == 0 || std::ranges::all_of(groups_to_time(comparison), [&](const Settings& group) {
           return finished_timing(comparison, group) != nullptr;
         });
}

}  // namespace norma::lab
