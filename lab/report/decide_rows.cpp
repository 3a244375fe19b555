#include "lab/report/decisions.h"

#include "base/lists.h"
#include "lab/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace norma::lab {

namespace {

constexpr double kPoints = 100;

double points_gained(const PairedRun& run) {
  return kPoints * (run.norm->accuracy - run.reference->accuracy);
}

/// The mean accuracy of the references, in points.
double mean_of_references(const std::vector<PairedRun>& runs) {
  const double sum = sum_of(runs, [](const PairedRun& run) { return kPoints * run.reference->accuracy; });
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

bool may_still_come(const Cell& cell) {
  return cell.state != CellState::finished && cell.state != CellState::failed;
}

/// The references of a comparison's norms; each group is searched once.
class References {
 public:
  explicit References(const Comparison& comparison) : comparison_(comparison) {}

  /// The reference of the norms in a group; "" if there is none.
  const std::string& of(const Settings& settings) {
    const Settings group = timing_group(settings);
    const auto known = std::ranges::find(known_, group, &std::pair<Settings, std::string>::first);
    return known != known_.end() ? known->second
                                 : known_.emplace_back(group, reference_of(norms_of(comparison_, group))).second;
  }

  /// True iff a norm is measured against another one.
  bool has_other(const Settings& settings) {
    const std::string& reference = of(settings);
    return !reference.empty() && settings.norm != reference;
  }

 private:
  const Comparison& comparison_;
  std::vector<std::pair<Settings, std::string>> known_;  // group
};

/// Compares the runs of both norms that have the same seed.
void decide_accuracy(const Comparison& comparison, Row& row, const Row& reference, int64_t tests, int64_t of_images) {
  row.reference = reference.norm;
  const PairedRuns pairs = paired_runs(comparison, row, reference);
  if (std::min(row.seeds, reference.seeds) < 2) {
    if (!image_differences(pairs.runs).empty()) {
      const auto& [own, other] = pairs.runs.front();
      row.images = mcnemar(own->right, other->right);
      row.images->chance = std::min(1.0, static_cast<double>(of_images) * row.images->chance);
    }
    return;
  }
  Decision decision{.pairs = static_cast<int64_t>(pairs.runs.size())};
  if (!pairs.waiting) {
    row.scatter = scatter_of(pairs.runs);
    decision = decide_by_mean(*row.scatter, tests);
  }
  decision.planned = pairs.planned;
  if (decision.state == Decision::State::none_found && !decision.equal) {
    row.outlook = outlook_of(*row.scatter, kEqualPoints, level_of(tests));
  }
  row.accuracy_difference = decision;
}

/// The seconds of a norm's step in each round; empty if it made none.
std::vector<double> steps_of(const Timing& timing, const std::string& norm) {
  const auto mine = std::ranges::find(timing.norms, norm) - timing.norms.begin();
  return mine == std::ssize(timing.norms)
             ? std::vector<double>()
             : mapped(timing.rounds, [&](const auto& round) { return round[static_cast<size_t>(mine)]; });
}

/// The share lost in each round in which batch norm and this norm made a step.
std::vector<double> shares_lost(const Timing& timing, const std::string& norm) {
  const std::vector<double> batch = steps_of(timing, reference_of(timing.norms));
  const std::vector<double> mine = steps_of(timing, norm);
  std::vector<double> lost;
  for (size_t round = 0; round < std::min(batch.size(), mine.size()); ++round) {
    lost.push_back(1 - batch[round] / mine[round]);
  }
  return filtered(lost, [](double share) { return !std::isnan(share); });
}

std::optional<Decision> decide_tax(const Comparison& comparison, const Row& row, int64_t tests) {
  if (const Timing* timing = finished_timing(comparison, row)) {
    const std::vector<double> lost = shares_lost(*timing, row.norm);
    return lost.empty() ? std::nullopt : std::optional(decide_by_median(lost, tests));
  }
  if (comparison.timing_rounds == 0) {
    return std::nullopt;
  }
  const Timing* begun = timing_of(comparison, timing_group(row));
  return Decision{.pairs = begun == nullptr ? 0 : static_cast<int64_t>(begun->rounds.size()),
                  .planned = comparison.timing_rounds};
}

/// The median time of a norm's steps; none if it made none.
std::optional<double> median_seconds(const Timing& timing, const std::string& norm) {
  std::vector<double> steps = finite_steps(timing, norm);
  return steps.empty() ? std::nullopt : std::optional(median_interval(std::move(steps)).median);
}

}  // namespace

Decision without_sign(Decision decision) {
  if (decision.difference < 0) {
    decision.difference = -decision.difference;
    decision.low = -std::exchange(decision.high, -decision.low);
  }
  return decision;
}

PairedRuns paired_runs(const Comparison& comparison, const Settings& row, const Settings& reference) {
  std::vector<const Cell*> cells;
  std::vector<const Cell*> others;
  PairedRuns pairs;
  for (const Cell& cell : comparison.cells) {
    const bool own = same_but_seed(cell, row);
    if (own || same_but_seed(cell, reference)) {
      (own ? cells : others).push_back(&cell);
      pairs.waiting |= may_still_come(cell);
    }
  }
  for (const Cell* cell : cells) {
    for (const Cell* other : others) {
      if (cell->seed == other->seed) {
        ++pairs.planned;
        if (cell->state == CellState::finished && other->state == CellState::finished) {
          pairs.runs.push_back({.norm = cell, .reference = other});
        }
      }
    }
  }
  return pairs;
}

PairedRuns paired_runs(const Comparison& comparison, const Row& row) {
  Settings reference = row;
  reference.norm = row.reference;
  return paired_runs(comparison, row, reference);
}

std::vector<ImageDifferences> image_differences(const std::vector<PairedRun>& runs) {
  constexpr size_t kFewest = 2;  // of which a variance can be taken
  std::vector<ImageDifferences> differences;
  for (const auto& [norm, reference] : runs) {
    const size_t images = norm->right.size();
    if (images < kFewest || reference->right.size() != images || images != runs.front().norm->right.size()) {
      return {};
    }
    ImageDifferences& one = differences.emplace_back(images);
    for (size_t i = 0; i < images; ++i) {
      one[i] = static_cast<int8_t>((norm->right[i] ? 1 : 0) - (reference->right[i] ? 1 : 0));
    }
  }
  return differences;
}

Scatter scatter_of(const std::vector<PairedRun>& runs) {
  Scatter scatter;
  if (const std::vector<ImageDifferences> images = image_differences(runs); !images.empty()) {
    scatter = scatter_of(images);
  } else {
    scatter = scatter_of(mapped(runs, points_gained));
  }
  const double reference = mean_of_references(runs);
  scatter.possible = {.low = -reference, .high = kPoints - reference};
  return scatter;
}

Scatter scatter_between(const std::vector<PairedRun>& from, const std::vector<PairedRun>& to) {
  std::vector<PairedRun> before;
  std::vector<PairedRun> after;
  for (const PairedRun& one : from) {
    const auto same = std::ranges::find(to, one.norm->seed, [](const PairedRun& run) { return run.norm->seed; });
    if (same != to.end()) {
      before.push_back(one);
      after.push_back(*same);
    }
  }
  std::vector<double> differences;
  for (size_t i = 0; i < before.size(); ++i) {
    differences.push_back(points_gained(after[i]) - points_gained(before[i]));
  }
  Scatter scatter = scatter_of(differences);
  if (before.empty()) {
    return scatter;
  }
  const double of_references = mean_of_references(after) - mean_of_references(before);
  const Interval possible = {.low = -kPoints - of_references, .high = kPoints - of_references};
  scatter.possible = possible;
  std::vector<ImageDifferences> images = image_differences(after);
  const std::vector<ImageDifferences> earlier = image_differences(before);
  if (images.empty() || earlier.empty()) {
    return scatter;
  }
  if (before.front().norm->dataset == after.front().norm->dataset && images.front().size() == earlier.front().size()) {
    for (size_t seed = 0; seed < images.size(); ++seed) {
      for (size_t i = 0; i < images[seed].size(); ++i) {
        images[seed][i] = static_cast<int8_t>(images[seed][i] - earlier[seed][i]);
      }
    }
    scatter = scatter_of(images);
    scatter.possible = possible;
    return scatter;
  }
  const Scatter first = scatter_of(earlier);
  const Scatter second = scatter_of(images);
  scatter.image_variance = first.image_variance + second.image_variance;
  scatter.images = std::min(first.images, second.images);
  return scatter;
}

int64_t accuracy_tests(const Comparison& comparison) {
  std::vector<Settings> tested;  // with two seeds or more
  std::vector<Settings> seen;
  References references(comparison);
  for (const Cell& cell : comparison.cells) {
    Settings key = cell;
    key.seed = 0;
    if (references.has_other(cell) && !add_once(seen, key)) {
      add_once(tested, key);
    }
  }
  return static_cast<int64_t>(tested.size());
}

int64_t image_tests(const Comparison& comparison) {
  References references(comparison);
  return std::ranges::count_if(comparison.cells, [&](const Cell& cell) { return references.has_other(cell); });
}

int64_t tax_tests(const Comparison& comparison) {
  std::vector<Settings> tested;
  References references(comparison);
  for (const Cell& cell : comparison.cells) {
    Settings key = timing_group(cell);
    key.norm = cell.norm;
    if (references.has_other(cell)) {
      add_once(tested, key);
    }
  }
  return static_cast<int64_t>(tested.size());
}

void decide_rows(const Comparison& comparison, std::vector<Row>& rows) {
  const int64_t accuracies = accuracy_tests(comparison);
  const int64_t of_images = image_tests(comparison);
  const int64_t taxes = tax_tests(comparison);
  References references(comparison);
  for (Row& row : rows) {
    if (references.has_other(row)) {
      const std::string& reference = references.of(row);
      const auto batch = std::ranges::find_if(rows, [&](const Row& other) {
        return other.norm == reference && comparison_group(other) == comparison_group(row);
      });
      if (batch != rows.end()) {  // the reference may lack this learning rate
        decide_accuracy(comparison, row, *batch, std::max<int64_t>(accuracies, 1), of_images);
      }
      row.tax = decide_tax(comparison, row, taxes);
    }
    if (const std::optional<double> seconds = seconds_of_step(comparison, row)) {
      row.images_per_second = {.mean = static_cast<double>(row.batch_size) / *seconds};
      row.rate_in_turns = true;
      if (row.tax && row.tax->known()) {
        const double of_reference = row.images_per_second.mean / (1 - row.tax->difference);
        row.rate_within =
            Interval{.low = of_reference * (1 - row.tax->high), .high = of_reference * (1 - row.tax->low)};
      }
    }
  }
}

const Timing* timing_of(const Comparison& comparison, const Settings& group) {
  const auto found = std::ranges::find(comparison.timings, group, &Timing::group);
  return found == comparison.timings.end() ? nullptr : &*found;
}

std::vector<double> finite_steps(const Timing& timing, const std::string& norm) {
  return filtered(steps_of(timing, norm), [](double seconds) { return std::isfinite(seconds); });
}

const Timing* finished_timing(const Comparison& comparison, const Settings& row) {
  const Timing* timing = timing_of(comparison, timing_group(row));
  return timing != nullptr && std::ssize(timing->rounds) >= comparison.timing_rounds ? timing : nullptr;
}

std::optional<double> seconds_of_step(const Comparison& comparison, const Settings& row) {
  const Timing* timing = finished_timing(comparison, row);
  if (timing == nullptr) {
    return std::nullopt;
  }
  const std::string reference = reference_of(timing->norms);
  const std::optional<double> seconds = median_seconds(*timing, reference);
  if (row.norm == reference || !seconds) {
    return seconds ? seconds : median_seconds(*timing, row.norm);
  }
  std::vector<double> lost = shares_lost(*timing, row.norm);
  if (lost.empty()) {
    return std::nullopt;
  }
  return *seconds / (1 - median_interval(std::move(lost)).median);
}

}  // namespace norma::lab
