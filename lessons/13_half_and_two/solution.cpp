// Lesson 13: our answers.

#include "exercise.h"

#include <cmath>

bool scaled_step(std::vector<float>& weights, const std::vector<float>& gradients, double rate, int64_t interval,
                 LossScale& state) {
  // GAP 1: all gradients first: a step may not be half done
  for (const float gradient : gradients) {
    if (!std::isfinite(gradient)) {
      state = {.scale = state.scale / 2, .good_steps = 0};
      return false;
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(weights[i] - rate * (gradients[i] / state.scale));
  }
  if (++state.good_steps == interval) {
    state = {.scale = state.scale * 2, .good_steps = 0};
  }
  return true;
}

std::vector<double> averaged(const std::vector<Part>& parts) {
  std::vector<double> result(parts[0].gradient.size(), 0);
  // GAP 2: a part counts by its images; 0 times NaN is NaN
  int64_t images = 0;
  for (const Part& part : parts) {
    images += part.images;
  }
  for (const Part& part : parts) {
    for (size_t i = 0; part.images > 0 && i < result.size(); ++i) {
      result[i] += part.gradient[i] * static_cast<double>(part.images) / static_cast<double>(images);
    }
  }
  return result;
}

Statistics of_all(const std::vector<Statistics>& parts) {
  Statistics all;
  // GAP 3: Chan's merge. The distance of the means counts, too
  for (const Statistics& part : parts) {
    if (part.count > 0) {
      const int64_t count = all.count + part.count;
      const double share = static_cast<double>(part.count) / static_cast<double>(count);
      const double distance = part.mean - all.mean;
      all.var = all.var * (1 - share) + part.var * share + distance * distance * share * (1 - share);
      all.mean += distance * share;
      all.count = count;
    }
  }
  return all;
}
