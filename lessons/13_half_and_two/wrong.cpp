// Lesson 13: answers that the tests must not pass, and what they must say.
#include "wrong.h"
#include "exercise.h"

#include <cmath>

namespace ours {
#include "solution.cpp"
}

bool scaled_step(std::vector<float>& weights, const std::vector<float>& gradients, double rate, int64_t interval,
                 LossScale& state) {
  const LossScale before = state;
  switch (wrong_answer()) {
    case 1:  // gap 1 must say "Divide the gradients by the scale"
      return ours::scaled_step(weights, gradients, rate * state.scale, interval, state);
    case 2:  // gap 1 must say "the step that doubles the scale still belongs to the old one"
      return ours::scaled_step(weights, gradients, state.good_steps + 1 == interval ? rate / 2 : rate, interval, state);
    case 3:  // gap 1 must say "look at all of them first"
      for (size_t i = 0; i < weights.size(); ++i) {
        if (!std::isfinite(gradients[i])) {
          state = {.scale = state.scale / 2, .good_steps = 0};
          return false;
        }
        weights[i] = static_cast<float>(weights[i] - rate * (gradients[i] / before.scale));
      }
      return ours::scaled_step(weights, gradients, 0, interval, state);
    case 4: {  // gap 1 must say "ends the row"
      const bool changed = ours::scaled_step(weights, gradients, rate, interval, state);
      state.good_steps = changed ? state.good_steps : before.good_steps;
      return changed;
    }
    case 5: {  // gap 1 must say "counting begins anew"
      const bool changed = ours::scaled_step(weights, gradients, rate, interval, state);
      state.good_steps = changed ? before.good_steps + 1 : 0;
      return changed;
    }
    case 6:  // gap 1 must say "by the scale of the next step"
      return ours::scaled_step(weights, gradients, rate / 2, interval, state);
    case 7:  // gap 1 must say "no weight may change"
      return ours::scaled_step(weights, gradients, rate, interval, state) || std::isnan(gradients.back());
    default: return ours::scaled_step(weights, gradients, rate, interval, state);
  }
}

std::vector<double> averaged(const std::vector<Part>& parts) {
  std::vector<Part> changed = parts;
  std::vector<double> result = ours::averaged(parts);
  switch (wrong_answer()) {
    case 11:  // gap 2 must say "Yours is the plain mean"
      for (Part& part : changed) {
        part.images = 1;
      }
      return ours::averaged(changed);
    case 12:  // gap 2 must say "0 times NaN"
      for (const Part& part : parts) {
        for (size_t i = 0; i < result.size(); ++i) {
          result[i] += 0 * part.gradient[i];
        }
      }
      return result;
    case 13:  // gap 2 must say "the sum of the means"
      for (double& value : result) {
        value *= static_cast<double>(parts.size());
      }
      return result;
    default: return result;
  }
}

Statistics of_all(const std::vector<Statistics>& parts) {
  Statistics all = ours::of_all(parts);
  double vars = 0;
  double squares = 0;
  double plain = 0;
  for (const Statistics& part : parts) {
    const double share = static_cast<double>(part.count) / static_cast<double>(all.count);
    vars += part.var * share;
    squares += (part.var + part.mean * part.mean) * share;
    plain += part.mean / static_cast<double>(parts.size());
  }
  switch (wrong_answer()) {
    case 21:  // gap 3 must say "the mean of the variances"
      all.var = vars;
      break;
    case 22:  // gap 3 must say "Do you subtract two large numbers?"
      all.var = squares - all.mean * all.mean;
      break;
    case 23:  // gap 3 must say "A process counts by its numbers"
      all.mean = plain;
      break;
    case 24:  // gap 3 must say "divides by n - 1"
      all.var *= static_cast<double>(all.count) / static_cast<double>(all.count - 1);
      break;
    case 25:  // gap 3 must say "expected count"
      all.count = static_cast<int64_t>(parts.size());
      break;
    default: break;
  }
  return all;
}
