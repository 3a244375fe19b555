#pragma once

#include "nn/module.h"
#include "train/recipe.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace norma::train {

struct TrainingState;

/// Freezes the parts of a network that Recipe::freeze and the line `freeze` of the norm policy name (nn/freeze.h).
/// Throws Error as nn::freeze() does, and for a frozen classifier that Recipe::reset_head would make anew.
void freeze(nn::Module& model, const Recipe& recipe);

/// The key in Checkpoint::options for FrozenTensors::json().
inline constexpr const char* kFrozenKey = "frozen";

/// The SHA-256 of each frozen tensor of a network: of its elements in row-major order, in its own dtype, so that memory
/// formats and devices do not matter.
class FrozenTensors {
 public:
  FrozenTensors() = default;
  /// Takes the hashes of the network as it is now.
  explicit FrozenTensors(const nn::Module& model);
  /// Reads what json() wrote. Throws Error for another text.
  explicit FrozenTensors(const std::string& json);

  [[nodiscard]] bool empty() const { return hashes_.empty(); }
  [[nodiscard]] std::set<std::string> names() const;
  /// {"conv1.weight": "5e88…", …}
  [[nodiscard]] std::string json() const;
  /// Throws Error for the first frozen tensor of the run that has changed, and for one whose moving average has.
  void check(const TrainingState& run) const;

 private:
  std::map<std::string, std::string> hashes_;
};

/// "freeze: 3 of 62 parameters (9536 of 11181642 elements) and the statistics of 1 norm stay as they are"
std::string frozen_text(const nn::Module& model);

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
