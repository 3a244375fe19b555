#pragma once

#include "train/training_state.h"

#include <cstdint>
#include <string>

namespace norma::train {

/// The time and memory of a step with and without the frozen parts, for images of zeros. Measuring leaves no trace in
/// the run.
struct FreezeSavings {
  int64_t images = 0;  ///< in the step
  double seconds = 0;  ///< forward and backward
  double seconds_unfrozen = 0;
  int64_t kept = 0;  ///< bytes that the tape keeps for backward
  int64_t kept_unfrozen = 0;
  int64_t gradients = 0;  ///< bytes
  int64_t gradients_unfrozen = 0;
  std::string fault = {};  ///< why the unfrozen step could not be made; then the figures of both are 0
};
FreezeSavings measure_freeze_savings(TrainingState& run);

/// "freeze: forward and backward of 32 images take 0.120 s in place of 0.161 s, and keep 20.1 MB in place of 35.2 MB;
/// …"
std::string to_string(const FreezeSavings& savings);
/// {"images": 32, "seconds": 0.12, …}
std::string to_json(const FreezeSavings& savings);

}  // namespace norma::train
