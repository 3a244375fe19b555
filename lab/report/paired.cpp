#include "lab/report/paired.h"

#include <algorithm>
#include <cstddef>

namespace norma::lab {

namespace {

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
  if (const std::vector<ImageDifferences> differences = image_differences(runs); !differences.empty()) {
    return scatter_of(differences);
  }
  constexpr double kPoints = 100;
  std::vector<double> differences;
  for (const auto& [norm, reference] : runs) {
    differences.push_back(kPoints * (norm->accuracy - reference->accuracy));
  }
  return scatter_of(differences);
}

}  // namespace norma::lab
