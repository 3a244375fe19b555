#pragma once

#include "data/augment/geometry.h"
#include "data/augment/random.h"
#include "data/image_file.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace norma::data {

/// The ops of the policies; each takes the argument of its PolicyStep.
enum class PolicyOp : uint8_t {
  identity,
  autocontrast,
  equalize,
  invert,
  rotate,        ///< by degrees, anticlockwise
  posterize,     ///< to this many bits
  solarize,      ///< from this byte on
  solarize_add,  ///< adds this to bytes below 128
  color,         ///< adjust_saturation(), by this factor
  contrast,      ///< by this factor
  brightness,
  sharpness,
  shear_x,  ///< by this factor
  shear_y,
  translate_x,  ///< by this many pixels, as in data/augment/geometry.h
  translate_y,
};

/// The op's name in torchvision's policies: "ShearX".
std::string_view name_of(PolicyOp op);

/// One op with its argument, as drawn.
struct PolicyStep {
  PolicyOp op = PolicyOp::identity;
  double argument = 0;  ///< 0 for ops that take none
  Interpolation interpolation = Interpolation::nearest;
};

/// timm's RandAugment: draws `num_layers` of 15 ops evenly, with repetition, and applies each with `probability`.
struct RandAugmentOptions {
  int64_t magnitude = 10;    ///< m: the strength, out of 10
  int64_t num_layers = 2;    ///< n
  double probability = 0.5;  ///< p: that a drawn op is applied
  double magnitude_std = 0;  ///< mstd: the magnitude is drawn around m with this standard deviation. If it is infinite
                             ///< (above 100 in a text), it is drawn evenly from 0 to m
  int64_t magnitude_max = 10;  ///< mmax: magnitudes are limited to this, and to at least 0
  bool increasing = false;     ///< inc: posterize, solarize and the four adjustments grow with the magnitude too
};

/// torchvision's TrivialAugmentWide: one op of 14, drawn evenly, with one of 31 strengths, drawn evenly.
struct TrivialAugmentOptions {};

/// Parses timm's text "rand-m9-n3-mstd0.5-inc1", its parts in any order. Throws Error "op: …" for a text that does not
/// begin with "rand", for an unknown key (and lists the known ones), for a key that comes twice, and for an invalid
/// value.
RandAugmentOptions parse_rand_augment(std::string_view op, std::string_view text);

struct PolicyOptions {
  Color fill = {128, 128, 128};  ///< color of the area that ops of geometry bring in; timm takes the mean of the
                                 ///< dataset
  /// For ops of geometry. None: bilinear or bicubic, by chance, as in timm.
  std::optional<Interpolation> interpolation = std::nullopt;
};

/// An automatic augmentation. Its draws depend on the image's sizes, not on its pixels.
class Policy {
 public:
  using Kind = std::variant<RandAugmentOptions, TrivialAugmentOptions>;
  explicit Policy(const Kind& kind, const PolicyOptions& options = {}) : kind_(kind), options_(options) {}

  /// The steps for an image of these sizes.
  [[nodiscard]] std::vector<PolicyStep> draw(Draw& draw, int64_t height, int64_t width) const;
  /// The image after draw()'s steps. Throws Error for an empty image.
  [[nodiscard]] Image apply(Image image, Draw& draw) const;

 private:
  Kind kind_;
  PolicyOptions options_;
};

/// The image after one step.
Image apply(const PolicyStep& step, Image image, const Color& fill);

/// Parses "rand-…" (RandAugment) or "ta_wide" (TrivialAugmentWide, named as in torchvision's training script). Throws
/// Error "op: …" for other texts.
Policy::Kind parse_policy(std::string_view op, std::string_view text);

}  // namespace norma::data
