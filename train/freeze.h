#pragma once

#include "nn/module.h"
#include "train/recipe.h"

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

}  // namespace norma::train
