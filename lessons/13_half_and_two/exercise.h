#pragma once

#include <cstdint>
#include <vector>

/// What loss scaling remembers from step to step.
struct LossScale {
  double scale = 65536;    ///< of the next step's loss
  int64_t good_steps = 0;  ///< since the scale changed
};

/// One step of gradient descent. `gradients` are those of the loss times state.scale, as float16 has kept them; the
/// weights are float32. If all gradients are finite, each weight becomes weight - rate * (its true gradient). If any is
/// infinite or NaN, no weight changes, and the scale is halved. After `interval` good steps in a row the scale is
/// doubled, and counting begins anew, as it does after it was halved. Returns whether the weights have changed.
bool scaled_step(std::vector<float>& weights, const std::vector<float>& gradients, double rate, int64_t interval,
                 LossScale& state);

/// A process's share of a batch.
struct Part {
  int64_t images = 0;
  std::vector<double> gradient;  ///< of the mean loss of these images
};

/// The gradient of the mean loss of all images. A process without images has a gradient of NaNs, 0 / 0.
std::vector<double> averaged(const std::vector<Part>& parts);

/// What one channel's numbers in a process, or in all of them, are like.
struct Statistics {
  int64_t count = 0;
  double mean = 0;
  double var = 0;  ///< the mean of (x - mean)²
};

/// The statistics of the numbers of all processes; also where their mean is large. A process without numbers has count
/// 0, and there is at least one number in all.
Statistics of_all(const std::vector<Statistics>& parts);
