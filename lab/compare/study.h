#pragma once

#include "lab/compare/comparison.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A question about norms, and the grid that answers it. Options that are given replace the grid's values.
struct Study {
  std::string name;
  std::string question;
  std::vector<std::string> models;
  std::vector<std::string> norms;
  // Axes; an empty one has the recipe's value.
  std::vector<int64_t> batch_sizes = {};
  std::vector<double> lrs = {};
  std::vector<std::string> precisions = {};
  std::map<std::string, std::vector<std::string>> options = {};  ///< see ComparisonOptions
  /// The classes that runs are about; a network that runs start from is trained on the others. Empty: all.
  std::vector<int64_t> classes = {};
  LrScaling lr_scaling = LrScaling::none;
  /// Studies with a claim have several seeds, since one decides nothing.
  std::vector<uint64_t> seeds = {0};
  /// The test images of each run if there is a budget of time, most of which all test images would take. 0: all of
  /// them.
  int64_t budget_test_images = 2000;
};

/// All studies: batch-size, precision, depth, lr, which ask; data-size, optimizer, dyt, derf, weight-decay, ema
/// and finetune, which weigh a claim (lab/report/claim.h).
const std::vector<Study>& studies();

/// The study of this name. Throws Error "study: …" for an unknown one, with the nearest known name.
const Study& study_of(std::string_view name);

/// Fills the empty models, norms, seeds and axes of `options` with a study's values, and its classes unless runs start
/// from a file. Sets the scaling of the learning rate and the study's name.
void apply_study(const Study& study, ComparisonOptions& options);

}  // namespace norma::lab
