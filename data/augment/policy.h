#pragma once

#include "data/augment/geometry.h"
#include "data/augment/random.h"
#include "data/image_file.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace norma::data {

/// What a policy does to an image.
enum class PolicyOp : uint8_t {
  identity,
  autocontrast,
  equalize,
  invert,
  rotate,        ///< by degrees, anticlockwise
  posterize,     ///< to so many bits
  solarize,      ///< from this byte on
  solarize_add,  ///< so much to bytes below 128
  color,         ///< adjust_saturation() by this factor
  contrast,      ///< by this factor
  brightness,
  sharpness,
  shear_x,  ///< by this factor
  shear_y,
  translate_x,  ///< by so many pixels, of data/augment/geometry.h
  translate_y,
};

/// As in the policies of torchvision: "ShearX".
std::string_view name_of(PolicyOp op);

/// One op with its number, as drawn.
struct PolicyStep {
  PolicyOp op = PolicyOp::identity;
  double argument = 0;  ///< 0 for ops that have none
  Interpolation interpolation = Interpolation::nearest;
};

/// timm's RandAugment: `num_layers` ops of 15, each drawn evenly and put back, each done with `probability`.
struct RandAugmentOptions {
  int64_t magnitude = 10;    ///< m: how strong, of 10
  int64_t num_layers = 2;    ///< n
  double probability = 0.5;  ///< p: of each op
  double magnitude_std = 0;  ///< mstd: the magnitude is drawn around m with this standard deviation; infinite (a text's
                             ///< number above 100): evenly from 0 to m
  int64_t magnitude_max = 10;  ///< mmax: magnitudes are cut off here, and at 0
  bool increasing = false;     ///< inc: posterize, solarize and the four adjustments grow with the magnitude too
};

/// torchvision's TrivialAugmentWide: one op of 14, drawn evenly, with one of 31 strengths, drawn evenly.
struct TrivialAugmentOptions {};

/// From timm's text "rand-m9-n3-mstd0.5-inc1": the parts in any order. Throws Error "op: …" for a text that does not
/// begin with "rand", for an unknown key (and says which are known), a key that comes twice, and a value that makes no
/// sense.
RandAugmentOptions parse_rand_augment(std::string_view op, std::string_view text);

struct PolicyOptions {
  Color fill = {128, 128, 128};  ///< of what ops of geometry bring in; timm takes the mean of the dataset
  /// Of geometry. None: bilinear or bicubic, by chance, as in timm.
  std::optional<Interpolation> interpolation = std::nullopt;
};

/// An automatic augmentation. What it draws does not depend on the image, but for its sizes.
class Policy {
 public:
  using Kind = std::variant<RandAugmentOptions, TrivialAugmentOptions>;
  explicit Policy(const Kind& kind, const PolicyOptions& options = {}) : kind_(kind), options_(options) {}

  /// The steps for an image of these sizes.
  [[nodiscard]] std::vector<PolicyStep> draw(Draw& draw, int64_t height, int64_t width) const;
  /// The image after draw()'s steps. Throws Error for an empty image.
  [[nodiscard]] Image apply(const Image& image, Draw& draw) const;

 private:
  Kind kind_;
  PolicyOptions options_;
};

/// The image after one step.
Image apply(const PolicyStep& step, const Image& image, const Color& fill);

/// "rand-…" (RandAugment) or "ta_wide" (TrivialAugmentWide, the name in torchvision's training script). Throws Error
/// "op: …" for other texts.
Policy::Kind parse_policy(std::string_view op, std::string_view text);

}  // namespace norma::data
