#include "lab/report/tuning.h"

#include <tuple>

namespace norma::lab {

bool same_but_seed(const Settings& a, const Settings& b) {
  const auto all_but_seed = [](const Settings& s) {
    return std::tie(s.model, s.norm, s.batch_size, s.lr, s.precision, s.format, s.dataset);
  };
  return all_but_seed(a) == all_but_seed(b);
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
