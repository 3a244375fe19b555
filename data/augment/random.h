#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace norma::data {

/// The chance in an augmentation: a pure function of these three, so that it does not depend on threads or on which
/// images came before.
struct AugmentationKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t index = 0;  ///< of the image in the dataset
};

/// What numbers are drawn for. Each has numbers of its own: switching one augmentation on leaves what the others draw
/// as it is. The values are part of what makes a run repeatable: new ones come last.
enum class DrawFor : uint8_t { crop, flip, policy, color_jitter, erasing, mix };

/// Random numbers for one purpose of one key, by Philox: the n-th number is a pure function of key, purpose and n.
class Draw {
 public:
  Draw(const AugmentationKey& key, DrawFor purpose);

  /// In [0, 1), with 53 bits.
  double uniform();
  /// In [low, high), or `low` where both are the same.
  double uniform(double low, double high);
  /// Whole, from `low` to `high`, both included. low <= high.
  int64_t integer(int64_t low, int64_t high);
  /// True with this probability; always for 1, never for 0.
  bool chance(double probability) { return uniform() < probability; }
  /// From the normal distribution with mean 0 and standard deviation 1.
  double normal();
  /// The order of 0 … values.size() - 1, each with the same probability.
  void permute(std::span<int> values);
  /// From the distribution Beta(alpha, alpha), in [0, 1]. alpha > 0.
  double beta(double alpha);

 private:
  std::array<uint32_t, 4> next();
  /// The logarithm of a number from the distribution Gamma(shape, 1).
  double log_gamma(double shape);

  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_;
  std::optional<double> spare_;  ///< normal numbers come in pairs
};

}  // namespace norma::data
