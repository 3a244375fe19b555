#pragma once

#include "train/memory_use.h"

#include <cstdint>

namespace norma::train {

/// The cost of a run, from a few of its own steps.
struct DryRun {
  MemoryUse memory;         ///< counted in a real step
  int64_t peak_bytes = 0;   ///< the most that tensors held, measured
  int64_t first_steps = 0;  ///< not timed: they make kernels and fetch memory
  int64_t timed_steps = 0;
  /// The median of the timed steps without waiting for images, or loading_seconds if that is longer. With workers = 0
  /// it is the sum of the two. If loading_seconds is unknown, it is the median with waiting.
  double step_seconds = 0;
  double loading_seconds = 0;  ///< for the images of a step at the loader's full speed; 0: the run is too short to tell
  int workers = 0;             ///< loader threads; 0: a step loads, then computes
  int64_t images_per_step = 0;
  int64_t steps_left = 0;         ///< steps from the start of this call to the end of the run
  int64_t evaluations = 0;        ///< in the run
  double evaluation_seconds = 0;  ///< per evaluation, from a part of the test images; with averaged weights twice
  double seconds = 0;             ///< of all steps and evaluations
};

}  // namespace norma::train
