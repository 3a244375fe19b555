#pragma once

#include "lab/compare/comparison.h"

#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A question about norms, and the grid that answers it. What is given beside it takes the place of its values.
struct Study {
  std::string name;
  std::string question;
  std::vector<std::string> models;
  std::vector<std::string> norms;
  // Axes; empty ones have the recipe's value.
  std::vector<int64_t> batch_sizes = {};
  std::vector<double> lrs = {};
  std::vector<std::string> precisions = {};
  LrScaling lr_scaling = LrScaling::none;
};

/// batch-size, precision, depth, lr.
const std::vector<Study>& studies();

/// Throws Error "study: …" for an unknown name, with the nearest known one.
const Study& study_of(std::string_view name);

/// Fills what `options` leave empty of models, norms and axes with a study's values, and its way of scaling the
/// learning rate.
void apply_study(const Study& study, ComparisonOptions& options);

}  // namespace norma::lab
