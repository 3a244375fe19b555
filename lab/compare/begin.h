#pragma once

#include "lab/compare/request.h"
#include "session/output.h"

#include <functional>
#include <optional>

namespace norma::lab {

/// A comparison that is about to run. It stays in its place: `options` know its lock.
struct BegunComparison {
  BegunComparison() = default;
  BegunComparison(const BegunComparison&) = delete;
  BegunComparison& operator=(const BegunComparison&) = delete;

  Comparison comparison;
  ComparisonOptions options;
  std::optional<train::FolderLock> lock;
  bool goes_on = false;  ///< it has begun before
};

/// Plans the comparison that is asked for, or finds the one to go on with: that of `resume`, or one with the same plan
/// in the output folder. Finds mistakes before the first step (rehearse_comparison()), chooses the length of the runs
/// for a budget, makes the output folder, and takes its lock.
///
/// The first of several processes does it (ComparisonOptions::group). Before a comparison goes on, it is given to
/// `take_environment`, which makes threads and convolutions as they were. Throws Error for invalid options, for a
/// folder that holds something else, and where a comparison cannot go on here: on another device or number of
/// processes, or with other weights to start from.
void begin_comparison(const ComparisonRequest& request, const std::function<void(const Comparison&)>& take_environment,
                      BegunComparison& begun);

/// True iff a cell of the comparison is in one of these states.
bool any_in_state(const Comparison& comparison, std::initializer_list<CellState> states);

}  // namespace norma::lab
