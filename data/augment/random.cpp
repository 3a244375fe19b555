#include "data/augment/random.h"

#include "core/philox.h"
#include "core/random.h"
#include "data/augment/normal_kernels.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace norma::data {

namespace {

// Keeps these numbers apart from those that other parts draw from the same seed.
constexpr uint64_t kDrawStream = uint64_t{3} << 61;

uint64_t wide(uint32_t high, uint32_t low) {
  return uint64_t{high} << 32 | low;
}

}  // namespace

// Seed, epoch and index become a seed and a stream of the image's own; the counter is left for the numbers.
Draw::Draw(const AugmentationKey& key, DrawFor purpose) : counter_(uint64_t{static_cast<uint8_t>(purpose)} << 56) {
  const auto bits = philox(key.seed, static_cast<uint64_t>(key.index), kDrawStream | static_cast<uint64_t>(key.epoch));
  seed_ = wide(bits[0], bits[1]);
  stream_ = wide(bits[2], bits[3]);
}

std::array<uint32_t, 4> Draw::next() {
  return philox(seed_, counter_++, stream_);
}

double Draw::uniform() {
  const auto bits = next();
  return uniform_double(bits[0], bits[1]);
}

double Draw::uniform(double low, double high) {
  return low + (high - low) * uniform();
}

int64_t Draw::integer(int64_t low, int64_t high) {
  const auto bits = next();
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  return low + static_cast<int64_t>(wide(bits[0], bits[1]) % count);  // bias below count / 2^64
}

double Draw::normal() {
  if (spare_.has_value()) {
    return *std::exchange(spare_, std::nullopt);
  }
  const auto bits = next();
  const auto pair = box_muller(uniform_double(bits[0], bits[1]), uniform_double(bits[2], bits[3]));
  spare_ = pair[1];
  return pair[0];
}

void Draw::normals(std::span<float> to) {
  if (spare_.has_value() && !to.empty()) {
    to[0] = static_cast<float>(normal());
    to = to.subspan(1);
  }
  std::array<UniformPair, 64> pairs;
  while (to.size() > 1) {
    const size_t count = std::min(to.size() / 2, pairs.size());
    for (size_t i = 0; i < count; ++i) {
      const auto bits = philox(seed_, counter_++, stream_);
      pairs[i] = {uniform_double(bits[0], bits[1]), uniform_double(bits[2], bits[3])};
    }
    normal_pairs(std::span(pairs).first(count), to.data());
    to = to.subspan(2 * count);
  }
  if (!to.empty()) {
    to[0] = static_cast<float>(normal());
  }
}

void Draw::permute(std::span<int> values) {
  std::iota(values.begin(), values.end(), 0);
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<size_t>(integer(0, static_cast<int64_t>(i) - 1))]);
  }
}

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. A shape below 1 is drawn as shape + 1,
// times u^(1 / shape). That factor is below the least double for small shapes, hence the logarithm.
double Draw::log_gamma(double shape) {
  double log_factor = 0;
  if (shape < 1) {
    log_factor = std::log1p(-uniform()) / shape;  // 1 - u lies in (0, 1]
    shape += 1;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double cube = std::pow(1 + c * x, 3);
    if (cube > 0 && std::log1p(-uniform()) < 0.5 * x * x + d - d * cube + d * std::log(cube)) {
      return std::log(d * cube) + log_factor;
    }
  }
}

double Draw::beta(double alpha) {
  const double a = log_gamma(alpha);
  const double b = log_gamma(alpha);
  return 1 / (1 + std::exp(b - a));
}

}  // namespace norma::data
