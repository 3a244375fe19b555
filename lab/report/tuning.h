#pragma once

#include "lab/report/settings.h"

#include <optional>
#include <string>
#include <vector>

namespace norma::lab {

/// A short training run that tries a learning rate.
struct Trial {
  double lr = 0;
  std::optional<double> loss = {};  ///< mean training loss of its last quarter; none: it failed
  std::string reason = {};          ///< why it failed
};

/// The learning rates tried for cells that differ only in the seed.
struct Tuning {
  Settings settings;          ///< of the first of these cells; the rates lie around its lr
  std::vector<Trial> trials;  ///< in the order of their rates, from the smallest
};

/// True iff the cells of two settings differ only in the seed.
bool same_but_seed(const Settings& a, const Settings& b);

/// The trial with the smallest loss; nullptr if no trial has one.
const Trial* best_trial(const Tuning& tuning);

/// True iff the best of several rates is the first or the last of them: a better one may lie beyond.
bool best_is_at_edge(const Tuning& tuning);

}  // namespace norma::lab
