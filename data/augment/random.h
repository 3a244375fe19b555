#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace norma::data {

/// The key of an augmentation's random numbers. They are a pure function of these three, so that they depend neither on
/// threads nor on earlier images.
struct AugmentationKey {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t index = 0;  ///< of the image in the dataset
};

/// The purposes that numbers are drawn for. Each has numbers of its own, so that switching one augmentation on leaves
/// the draws of the others as they are. A run is repeatable only while the values stay: new ones come last.
enum class DrawFor : uint8_t { crop, flip, policy, color_jitter, erasing, mix };

/// Random numbers for one purpose of one key, by Philox: the n-th number is a pure function of key, purpose and n.
class Draw {
 public:
  Draw(const AugmentationKey& key, DrawFor purpose);

  /// A number in [0, 1), with 53 bits.
  double uniform();
  /// A number in [low, high); `low` if both are the same.
  double uniform(double low, double high);
  /// A whole number from `low` to `high`, both included. low <= high.
  int64_t integer(int64_t low, int64_t high);
  /// True with this probability; always for 1, never for 0.
  bool chance(double probability) { return uniform() < probability; }
  /// A number from the normal distribution with mean 0 and standard deviation 1.
  double normal();
  /// The next numbers of normal(), rounded to float, by vectors.
  void normals(std::span<float> to);
  /// Fills `values` with an order of 0 … values.size() - 1, each with the same probability.
  void permute(std::span<int> values);
  /// A number from the distribution Beta(alpha, alpha), in [0, 1]. alpha > 0.
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
