#include "data/dataset.h"

#include "base/error.h"
#include "base/lists.h"
#include "core/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace norma::data {

namespace {

constexpr float kPi = std::numbers::pi_v<float>;

// Distance fields: negative inside the shape, in units of its radius; (x, y) are relative to its centre and
// turned by its angle. Every shape lies within the unit circle.

float circle(float x, float y) {
  return std::hypot(x, y) - 0.9F;
}

float box(float x, float y, float half_width, float half_height) {
  return std::max(std::abs(x) - half_width, std::abs(y) - half_height);
}

float square(float x, float y) {
  return box(x, y, 0.7F, 0.7F);
}

float triangle(float x, float y) {
  // Three half-planes with normals 120 degrees apart.
  const float side = std::numbers::sqrt3_v<float> / 2 * std::abs(x) + y / 2;
  return std::max(side, -y) - 0.5F;
}

float cross(float x, float y) {
  return std::min(box(x, y, 0.95F, 0.28F), box(x, y, 0.28F, 0.95F));
}

float ring(float x, float y) {
  return std::abs(std::hypot(x, y) - 0.7F) - 0.2F;
}

float star(float x, float y) {
  // The plane is folded into one tenth of the circle, between a tip at angle 0 and a notch at 36 degrees; the edge
  // joins them.
  constexpr float kTip = 1.0F;
  constexpr float kNotch = 0.4F;
  constexpr float kTenth = kPi / 5;
  const float radius = std::hypot(x, y);
  const float angle = std::abs(std::remainder(std::atan2(x, y), 2 * kTenth));
  const float px = radius * std::cos(angle) - kTip;
  const float py = radius * std::sin(angle);
  const float ex = kNotch * std::cos(kTenth) - kTip;
  const float ey = kNotch * std::sin(kTenth);
  return (py * -ex + px * ey) / std::hypot(ex, ey);
}

float stripes(float x, float y) {
  const float bars = std::abs(std::remainder(x, 0.56F)) - 0.14F;
  return std::max(bars, box(x, y, 0.7F, 0.7F));
}

float checkers(float x, float y) {
  constexpr float kCell = 0.47F;
  const float px = std::abs(std::remainder(x, 2 * kCell)) - kCell / 2;
  const float py = std::abs(std::remainder(y, 2 * kCell)) - kCell / 2;
  const float cells = std::max(std::min(px, -py), std::min(-px, py));  // inside where both are inside or both outside
  return std::max(cells, box(x, y, 1.5F * kCell, 1.5F * kCell));
}

float frame(float x, float y) {
  return std::abs(box(x, y, 0.55F, 0.55F)) - 0.15F;
}

float moon(float x, float y) {
  return std::max(std::hypot(x, y) - 0.95F, 0.75F - std::hypot(x - 0.45F, y));
}

struct Shape {
  const char* name;
  float (*distance)(float x, float y);
};

constexpr std::array<Shape, 10> kShapes = {{{"circle", circle},
                                            {"square", square},
                                            {"triangle", triangle},
                                            {"cross", cross},
                                            {"ring", ring},
                                            {"star", star},
                                            {"stripes", stripes},
                                            {"checkers", checkers},
                                            {"frame", frame},
                                            {"moon", moon}}};

constexpr int64_t kColors = 3;
// Philox subsequences: 2 * split for the numbers drawn once per image, 2 * split + 1 for the noise of its bytes.
uint64_t subsequence_of(Split split) {
  return split == Split::train ? 0 : 2;
}

/// A few random numbers of one image, in order.
class ShapeDraw {
 public:
  ShapeDraw(uint64_t seed, int64_t index, uint64_t subsequence)
      : seed_(seed), next_(static_cast<uint64_t>(index) * kBlocksPerImage), subsequence_(subsequence) {}

  uint32_t bits() {
    if (used_ == 4) {
      block_ = philox(seed_, next_++, subsequence_);
      used_ = 0;
    }
    return block_[used_++];
  }
  float between(float low, float high) { return low + (high - low) * uniform_float(bits()); }
  /// A number in [0, bound).
  int64_t below(int64_t bound) { return static_cast<int64_t>((uint64_t{bits()} * static_cast<uint64_t>(bound)) >> 32); }

 private:
  static constexpr uint64_t kBlocksPerImage = 16;
  uint64_t seed_;
  uint64_t next_;
  uint64_t subsequence_;
  std::array<uint32_t, 4> block_{};
  size_t used_ = 4;
};

class ShapesDataset final : public Dataset {
 public:
  explicit ShapesDataset(const DatasetOptions& options) : seed_(options.seed), split_(options.split) {
    info_.name = "shapes";
    info_.endless = true;
    info_.size = options.size > 0 ? options.size : (options.split == Split::train ? 60000 : 10000);
    info_.channels = kColors;
    info_.height = options.image_size;
    info_.width = options.image_size;
    info_.class_names = mapped(kShapes, [](const Shape& shape) { return std::string(shape.name); });
    // Statistics of thousands of images of 32 x 32 pixels; a test computes them again.
    info_.mean = {0.5F, 0.5F, 0.5F};
    info_.std = {0.266F, 0.266F, 0.266F};
  }

  int64_t load(int64_t index, Image& image) const override {
    check(index >= 0, "shapes", "index: expected a value of at least 0, got {}", index);
    const int64_t size = info_.height;
    image.set_size(size, size, kColors);
    ShapeDraw draw(seed_, index, subsequence_of(split_));
    const int64_t label = draw_label(draw);
    const float radius = static_cast<float>(size) * draw.between(0.22F, 0.45F);
    const float room = static_cast<float>(size) - 2 * radius;
    const float centre_x = radius + room * draw.between(0, 1);
    const float centre_y = radius + room * draw.between(0, 1);
    const float angle = draw.between(0, 2 * kPi);
    // One color is dark and the other bright in every channel, so that the shape can be seen.
    const bool bright_shape = (draw.bits() & 1) != 0;
    std::array<float, kColors> ground{};
    std::array<float, kColors> change{};
    for (size_t c = 0; c < kColors; ++c) {
      const float dark = draw.between(20, 105);
      const float bright = draw.between(150, 235);
      ground[c] = bright_shape ? dark : bright;
      change[c] = bright_shape ? bright - dark : dark - bright;
    }
    const float noise = draw.between(4, 40);

    paint_noise(index, noise, ground, image.pixels);
    const float step_x = std::cos(angle) / radius;
    const float step_y = std::sin(angle) / radius;
    for (int64_t y = 0; y < size; ++y) {
      for (int64_t x = 0; x < size; ++x) {
        const float dx = static_cast<float>(x) + 0.5F - centre_x;
        const float dy = static_cast<float>(y) + 0.5F - centre_y;
        if (std::max(std::abs(dx), std::abs(dy)) > radius + 1) {
          continue;
        }
        const float distance =
            kShapes[static_cast<size_t>(label)].distance(dx * step_x + dy * step_y, dy * step_x - dx * step_y);
        // The part of the pixel that the shape covers, if the edge is straight within it.
        const float covered = std::clamp(0.5F - distance * radius, 0.0F, 1.0F);
        if (covered > 0) {
          for (size_t c = 0; c < kColors; ++c) {
            uint8_t& value = image.pixels[static_cast<size_t>((y * size + x) * kColors) + c];
            value =
                static_cast<uint8_t>(std::clamp(static_cast<float>(value) + covered * change[c] + 0.5F, 0.0F, 255.0F));
          }
        }
      }
    }
    return label;
  }

  [[nodiscard]] int64_t label(int64_t index) const override {
    ShapeDraw draw(seed_, index, subsequence_of(split_));
    return draw_label(draw);
  }

 private:
  /// The first number that an image draws.
  static int64_t draw_label(ShapeDraw& draw) { return draw.below(static_cast<int64_t>(kShapes.size())); }

  /// Paints the ground's color and adds the sum of two uniform numbers in [-noise / 2, noise / 2) to each byte. They
  /// are drawn channel by channel.
  void paint_noise(int64_t index, float noise, const std::array<float, kColors>& ground,
                   std::vector<uint8_t>& pixels) const {
    const auto plane = static_cast<size_t>(info_.height * info_.width);
    const size_t blocks = (pixels.size() + 7) / 8;
    const uint64_t first = static_cast<uint64_t>(index) * blocks;
    for (size_t block = 0; block < blocks; ++block) {
      const auto bits = philox(seed_, first + block, subsequence_of(split_) + 1);
      for (size_t i = 0; i < 8 && block * 8 + i < pixels.size(); ++i) {
        const uint32_t pair = bits[i / 2] >> (16 * (i % 2));
        const auto sum = static_cast<float>((pair & 0xFF) + ((pair >> 8) & 0xFF));
        const size_t channel = (block * 8 + i) / plane;
        const size_t pixel = (block * 8 + i) % plane;
        const float value = ground[channel] + noise * (sum / 510 - 0.5F) + 0.5F;
        pixels[pixel * kColors + channel] = static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
      }
    }
  }

  uint64_t seed_;
  Split split_;
};

}  // namespace

std::shared_ptr<const Dataset> make_shapes(const DatasetOptions& options) {
  check(options.image_size >= 8, "shapes", "image_size: expected at least 8, got {}", options.image_size);
  check(options.size >= 0, "shapes", "size: expected at least 0, got {}", options.size);
  return std::make_shared<ShapesDataset>(options);
}

}  // namespace norma::data
