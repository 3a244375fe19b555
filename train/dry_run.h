#pragma once

#include "train/memory_use.h"

#include <cstdint>

namespace norma::train {

/// What a run will take, from a few of its own steps.
struct DryRun {
  MemoryUse memory;         ///< counted in a real step
  int64_t peak_bytes = 0;   ///< the most that tensors held, measured
  int64_t first_steps = 0;  ///< that were not timed: kernels are made, and memory is fetched
  int64_t timed_steps = 0;
  /// Their median without waiting for images, or loading_seconds where that is longer; with waiting where that is not
  /// known.
  double step_seconds = 0;
  double loading_seconds = 0;  ///< of the images of a step, as fast as they come; 0: the run is too short to tell
  int workers = 0;             ///< loader threads; 0: a step is both one after the other
  int64_t images_per_step = 0;
  int64_t steps_left = 0;         ///< of the run, from where it begins
  int64_t evaluations = 0;        ///< of the run
  double evaluation_seconds = 0;  ///< of one, from a part of the test images; with averaged weights twice
  double seconds = 0;             ///< of all steps and evaluations
};

}  // namespace norma::train
