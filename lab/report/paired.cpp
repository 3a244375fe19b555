#include "lab/report/paired.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace norma::lab {

namespace {

constexpr double kPoints = 100;

/// The mean accuracy of the references, in points.
double mean_of_references(const std::vector<PairedRun>& runs) {
  double sum = 0;
  for (const PairedRun& run : runs) {
    sum += kPoints * run.reference->accuracy;
  }
  return runs.empty() ? 0 : sum / static_cast<double>(runs.size());
}

bool may_still_come(const Cell& cell) {
  return cell.state != CellState::finished && cell.state != CellState::failed;
}

}  // namespace

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
    std::vector<double> differences;
    for (const auto& [norm, reference] : runs) {
      differences.push_back(kPoints * (norm->accuracy - reference->accuracy));
    }
    scatter = scatter_of(differences);
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
    const auto gain = [](const PairedRun& run) { return kPoints * (run.norm->accuracy - run.reference->accuracy); };
    differences.push_back(gain(after[i]) - gain(before[i]));
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

}  // namespace norma::lab
