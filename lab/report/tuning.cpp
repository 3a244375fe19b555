#include "lab/report/tuning.h"

namespace norma::lab {

bool same_but_seed(const Settings& a, const Settings& b) {
  Settings other = b;
  other.seed = a.seed;
  return a == other;
}

const Trial* best_trial(const Tuning& tuning) {
  const Trial* best = nullptr;
  for (const Trial& trial : tuning.trials) {
    if (trial.loss && (best == nullptr || *trial.loss < *best->loss)) {
      best = &trial;
    }
  }
  return best;
}

bool best_is_at_edge(const Tuning& tuning) {
  const Trial* best = best_trial(tuning);
  return best != nullptr && tuning.trials.size() > 1 &&
         (best == &tuning.trials.front() || best == &tuning.trials.back());
}

}  // namespace norma::lab
