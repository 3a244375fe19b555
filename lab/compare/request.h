#pragma once

#include "base/not_copied.h"
#include "lab/compare/comparison.h"
#include "session/output.h"
#include "train/recipe_option.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// What a user asks of a comparison. begin_comparison() makes a comparison of it.
struct ComparisonRequest {
  ComparisonRequest();

  ComparisonOptions options;
  std::string resume;  ///< the folder of the comparison to go on with; "": none
  double budget = 0;   ///< seconds; 0: none
  bool quick = false;  ///< a first page in about two minutes, where nothing else is said
  std::string study;   ///< for study_named(): its grid, where nothing else is said; "": none
  PartOf part;
  std::set<std::string, std::less<>> given;  ///< the last names of the options that were given
  train::Recipe value;                       ///< has the value of the recipe's option that is being given

  /// True iff one of these options was given.
  [[nodiscard]] bool has(const std::vector<std::string_view>& names) const;
  /// The options of the recipe that were given a value; switches are not among them.
  [[nodiscard]] std::vector<std::string> given_recipe_options() const;
};

/// All options of a comparison, in the order of help. Each is described in this one place: the options of
/// `norma compare` and the keyword arguments of norma.compare() in Python follow from it. They fill in `request`.
std::vector<train::OptionRow> option_rows(ComparisonRequest& request);

/// Throws Error for given options that exclude each other.
void check_given_together(const std::vector<train::OptionRow>& rows, const ComparisonRequest& request);

/// A comparison that is about to run. It stays in its place: `options` know its lock.
struct BegunComparison : NotCopied {
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
