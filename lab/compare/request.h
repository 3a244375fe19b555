#pragma once

#include "lab/compare/comparison.h"
#include "lab/compare/deal.h"
#include "train/recipe_option.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// What a user asks of a comparison. begin.h makes a comparison of it.
struct ComparisonRequest {
  ComparisonRequest();

  ComparisonOptions options;
  std::string resume;  ///< the folder of the comparison to go on with; "": none
  double budget = 0;   ///< seconds; 0: none
  bool quick = false;  ///< a first page in about three minutes, where nothing else is said
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

}  // namespace norma::lab
