#include "lab/report/decide_rows.h"

#include "lab/report/paired.h"
#include "lab/statistics/decision.h"
#include "lab/statistics/mcnemar.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace norma::lab {

namespace {

/// The references of a comparison's norms; each group is searched once.
class References {
 public:
  explicit References(const Comparison& comparison) : comparison_(comparison) {}

  /// The reference of the norms in a group; "" if there is none.
  const std::string& of(const Settings& settings) {
    const Settings group = timing_group(settings);
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const auto& one) { return one.first == group; });
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

/// The share lost in each round in which batch norm and this norm made a step.
std::vector<double> shares_lost(const Timing& timing, const std::string& norm) {
  const auto begin = timing.norms.begin();
  const auto batch = std::find(begin, timing.norms.end(), reference_of(timing.norms)) - begin;
  const auto mine = std::find(begin, timing.norms.end(), norm) - begin;
  const auto norms = static_cast<std::ptrdiff_t>(timing.norms.size());
  std::vector<double> lost;
  if (batch == norms || mine == norms) {
    return lost;
  }
  for (const std::vector<double>& round : timing.rounds) {
    const double share = 1 - round[static_cast<size_t>(batch)] / round[static_cast<size_t>(mine)];
    if (!std::isnan(share)) {
      lost.push_back(share);
    }
  }
  return lost;
}

std::optional<Decision> decide_tax(const Comparison& comparison, const Row& row, int64_t tests) {
  if (const Timing* timing = finished_timing(comparison, row)) {
    const std::vector<double> lost = shares_lost(*timing, row.norm);
    return lost.empty() ? std::nullopt : std::optional(decide_by_median(lost, tests));
  }
  if (comparison.timing_rounds == 0) {
    return std::nullopt;
  }
  const Settings group = timing_group(row);
  const auto begun = std::find_if(comparison.timings.begin(), comparison.timings.end(),
                                  [&](const Timing& timing) { return timing.group == group; });
  return Decision{.pairs = begun == comparison.timings.end() ? 0 : static_cast<int64_t>(begun->rounds.size()),
                  .planned = comparison.timing_rounds};
}

/// The median time of a norm's steps; none if it made none.
std::optional<double> median_seconds(const Timing& timing, const std::string& norm) {
  const auto mine = std::find(timing.norms.begin(), timing.norms.end(), norm);
  if (mine == timing.norms.end()) {
    return std::nullopt;
  }
  std::vector<double> steps;
  for (const std::vector<double>& round : timing.rounds) {
    if (const double seconds = round[static_cast<size_t>(mine - timing.norms.begin())]; std::isfinite(seconds)) {
      steps.push_back(seconds);
    }
  }
  return steps.empty() ? std::nullopt : std::optional(median_interval(std::move(steps)).median);
}

}  // namespace

int64_t accuracy_tests(const Comparison& comparison) {
  std::vector<Settings> tested;  // with two seeds or more
  std::vector<Settings> seen;
  References references(comparison);
  for (const Cell& cell : comparison.cells) {
    Settings key = cell;
    key.seed = 0;
    if (references.has_other(cell) && std::find(tested.begin(), tested.end(), key) == tested.end()) {
      (std::find(seen.begin(), seen.end(), key) == seen.end() ? seen : tested).push_back(std::move(key));
    }
  }
  return static_cast<int64_t>(tested.size());
}

int64_t image_tests(const Comparison& comparison) {
  References references(comparison);
  return std::count_if(comparison.cells.begin(), comparison.cells.end(),
                       [&](const Cell& cell) { return references.has_other(cell); });
}

int64_t tax_tests(const Comparison& comparison) {
  std::vector<Settings> tested;
  References references(comparison);
  for (const Cell& cell : comparison.cells) {
    Settings key = timing_group(cell);
    key.norm = cell.norm;
    if (references.has_other(cell) && std::find(tested.begin(), tested.end(), key) == tested.end()) {
      tested.push_back(std::move(key));
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
      const auto batch = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
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

const Timing* finished_timing(const Comparison& comparison, const Settings& row) {
  const Settings group = timing_group(row);
  const auto timing = std::find_if(comparison.timings.begin(), comparison.timings.end(),
                                   [&](const Timing& other) { return other.group == group; });
  return timing != comparison.timings.end() && static_cast<int64_t>(timing->rounds.size()) >= comparison.timing_rounds
             ? &*timing
             : nullptr;
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
