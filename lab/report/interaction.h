#pragma once

#include "lab/report/report.h"
#include "lab/report/table.h"
#include "lab/statistics/decision.h"

#include <string>
#include <vector>

namespace norma::lab {

/// How the difference between a norm and its reference changes from one value of an axis to another, where all else is
/// the same: a difference of differences, seed by seed.
struct Interaction {
  std::string norm;   ///< for people
  std::string axis;   ///< "batch size"
  std::string from;   ///< the axis' first value
  std::string to;     ///< another one
  std::string place;  ///< all else that varies: "resnet18", "resnet18, lr 0.01"
  Decision decision = {};
};

/// An interaction for each norm beside its reference and each value of an axis but the first, decided as differences
/// are (decide_by_mean()), at the level of their number. Axes are the models and those of varying_axes(); one that
/// follows another, as learning rates may follow batch sizes, makes none of its own. With one seed there are none.
std::vector<Interaction> interactions_of(const Comparison& comparison);

/// All of them, as a table of the section "Statistics".
Table interaction_table(const Comparison& comparison);

}  // namespace norma::lab
