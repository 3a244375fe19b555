#include "data/augment/policy.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/parse_number.h"
#include "data/augment/color.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>

namespace norma::data {

namespace {

constexpr std::array<PolicyOp, 15> kRandAugmentOps = {
    PolicyOp::autocontrast, PolicyOp::equalize,     PolicyOp::invert,  PolicyOp::rotate,      PolicyOp::posterize,
    PolicyOp::solarize,     PolicyOp::solarize_add, PolicyOp::color,   PolicyOp::contrast,    PolicyOp::brightness,
    PolicyOp::sharpness,    PolicyOp::shear_x,      PolicyOp::shear_y, PolicyOp::translate_x, PolicyOp::translate_y};

constexpr std::array<PolicyOp, 14> kTrivialAugmentOps = {
    PolicyOp::identity,  PolicyOp::shear_x,    PolicyOp::shear_y,      PolicyOp::translate_x, PolicyOp::translate_y,
    PolicyOp::rotate,    PolicyOp::brightness, PolicyOp::color,        PolicyOp::contrast,    PolicyOp::sharpness,
    PolicyOp::posterize, PolicyOp::solarize,   PolicyOp::autocontrast, PolicyOp::equalize};

bool is_geometry(PolicyOp op) {
  return op == PolicyOp::rotate || op >= PolicyOp::shear_x;
}

/// Draws the number even for a fixed interpolation, so that fixing it changes no other draw.
Interpolation draw_interpolation(const PolicyOptions& options, Draw& draw) {
  const auto drawn = draw.chance(0.5) ? Interpolation::bilinear : Interpolation::bicubic;
  return options.interpolation.value_or(drawn);
}

// --- RandAugment -----------------------------------------------------------------------------------------------

/// timm's functions from a magnitude to an op's argument; `level` is the magnitude over 10.
double rand_augment_argument(PolicyOp op, double level, bool increasing, int64_t height, int64_t width, Draw& draw) {
  const auto either_sign = [&](double x) { return draw.chance(0.5) ? -x : x; };
  switch (op) {
    case PolicyOp::rotate: return either_sign(level * 30);
    case PolicyOp::posterize: {
      const double bits = std::trunc(level * 4);
      return std::clamp(increasing ? 4 - bits : bits, 0.0, 8.0);
    }
    case PolicyOp::solarize: {
      const double threshold = std::min(256.0, std::trunc(level * 256));
      return increasing ? 256 - threshold : threshold;
    }
    case PolicyOp::solarize_add: return std::min(128.0, std::trunc(level * 110));
    case PolicyOp::color:
    case PolicyOp::contrast:
    case PolicyOp::brightness:
    case PolicyOp::sharpness: return increasing ? std::max(0.1, 1 + either_sign(level * 0.9)) : level * 1.8 + 0.1;
    case PolicyOp::shear_x:
    case PolicyOp::shear_y: return either_sign(level * 0.3);
    case PolicyOp::translate_x: return either_sign(level * 0.45) * static_cast<double>(width);
    case PolicyOp::translate_y: return either_sign(level * 0.45) * static_cast<double>(height);
    default: return 0;
  }
}

std::vector<PolicyStep> draw_steps(const RandAugmentOptions& rand, const PolicyOptions& options, int64_t height,
                                   int64_t width, Draw& draw) {
  std::vector<PolicyStep> steps;
  for (int64_t i = 0; i < rand.num_layers; ++i) {
    const PolicyOp op = kRandAugmentOps[static_cast<size_t>(draw.integer(0, kRandAugmentOps.size() - 1))];
    if (!draw.chance(rand.probability)) {
      continue;
    }
    auto magnitude = static_cast<double>(rand.magnitude);
    if (std::isinf(rand.magnitude_std)) {
      magnitude = draw.uniform(0, magnitude);
    } else if (rand.magnitude_std > 0) {
      magnitude += rand.magnitude_std * draw.normal();
    }
    const double level = std::clamp(magnitude, 0.0, static_cast<double>(rand.magnitude_max)) / 10;
    PolicyStep step{.op = op};
    step.argument = rand_augment_argument(op, level, rand.increasing, height, width, draw);
    if (is_geometry(op)) {
      step.interpolation = draw_interpolation(options, draw);
    }
    steps.push_back(step);
  }
  return steps;
}

// --- TrivialAugmentWide ----------------------------------------------------------------------------------------

constexpr int kStrengths = 31;

/// Strength i of torch.linspace(start, end, 31) in float32.
float evenly(float start, float end, int64_t i) {
  const float step = (end - start) / static_cast<float>(kStrengths - 1);
  return i < kStrengths / 2 ? start + step * static_cast<float>(i)
                            : end - step * static_cast<float>(kStrengths - 1 - i);
}

double trivial_augment_argument(PolicyOp op, Draw& draw) {
  const auto of = [&](float end) {
    const double strength = evenly(0, end, draw.integer(0, kStrengths - 1));
    return draw.chance(0.5) ? -strength : strength;
  };
  // To torchvision the shears are angles; the conversion to an angle and back changes the last bits.
  const auto angle = [](double factor) {
    return std::atan(factor) * (180.0 / std::numbers::pi) * (std::numbers::pi / 180.0);
  };
  switch (op) {
    case PolicyOp::shear_x: return std::tan(angle(of(0.99F)));
    case PolicyOp::shear_y: {
      const double radians = angle(of(0.99F));
      return std::sin(radians) / std::cos(radians);
    }
    case PolicyOp::translate_x:
    case PolicyOp::translate_y: return -std::trunc(of(32));
    case PolicyOp::rotate: return of(135);
    case PolicyOp::brightness:
    case PolicyOp::color:
    case PolicyOp::contrast:
    case PolicyOp::sharpness: return 1 + of(0.99F);
    case PolicyOp::posterize: return 8 - std::rint(static_cast<double>(draw.integer(0, kStrengths - 1)) / 5);
    case PolicyOp::solarize: return evenly(255, 0, draw.integer(0, kStrengths - 1));
    default: return 0;
  }
}

std::vector<PolicyStep> draw_steps(const TrivialAugmentOptions& /*none*/, const PolicyOptions& options,
                                   int64_t /*height*/, int64_t /*width*/, Draw& draw) {
  PolicyStep step{.op = kTrivialAugmentOps[static_cast<size_t>(draw.integer(0, kTrivialAugmentOps.size() - 1))]};
  step.argument = trivial_augment_argument(step.op, draw);
  if (is_geometry(step.op)) {
    step.interpolation = draw_interpolation(options, draw);
  }
  return {step};
}

}  // namespace

std::string_view name_of(PolicyOp op) {
  constexpr std::array<std::string_view, 16> names = {
      "Identity", "AutoContrast", "Equalize",   "Invert",    "Rotate", "Posterize", "Solarize",   "SolarizeAdd",
      "Color",    "Contrast",     "Brightness", "Sharpness", "ShearX", "ShearY",    "TranslateX", "TranslateY"};
  return names[static_cast<size_t>(op)];
}

RandAugmentOptions parse_rand_augment(std::string_view op, std::string_view text) {
  const auto refuse = [&](const std::string& reason) { fail(op, "{}: {}", excerpt(text), reason); };
  RandAugmentOptions options;
  std::set<std::string_view> seen;
  std::string_view rest = text;
  for (bool first = true; !rest.empty() || first; first = false) {
    const size_t dash = rest.find('-');
    const std::string_view part = rest.substr(0, dash);
    const bool last = dash == std::string_view::npos;
    rest = last ? std::string_view() : rest.substr(dash + 1);
    if (first) {
      check(part == "rand", op, "{}: expected rand, and parts of it as in rand-m9-mstd0.5-inc1", excerpt(text));
      if (!last && rest.empty()) {
        refuse("expected a key and its number after the last '-'");
      }
      continue;
    }
    const size_t digit = std::min(part.find_first_of("0123456789."), part.size());
    const std::string_view key = part.substr(0, digit);
    const std::string_view value = part.substr(digit);
    const auto require = [&](bool condition, std::string_view expected) {
      check(condition, op, "{}: {}: expected {}, got {}", excerpt(text), key, expected,
            value.empty() ? "none" : excerpt(value));
    };
    const auto whole = parse_number<int64_t>(value);
    const auto number = parse_number<double>(value);
    if (key == "m") {
      require(whole && *whole <= 1000, "a whole number from 0 to 1000");
      options.magnitude = *whole;
    } else if (key == "mmax") {
      require(whole && *whole <= 1000 && *whole > 0, "a whole number from 1 to 1000");
      options.magnitude_max = *whole;
    } else if (key == "n") {
      require(whole && *whole >= 1 && *whole <= 100, "a whole number from 1 to 100");
      options.num_layers = *whole;
    } else if (key == "inc") {
      require(whole && *whole <= 1, "0 or 1");
      options.increasing = *whole == 1;
    } else if (key == "p") {
      require(number && *number <= 1, "a number from 0 to 1");
      options.probability = *number;
    } else if (key == "mstd") {
      require(number.has_value(), "a number of at least 0");
      options.magnitude_std = *number > 100 ? std::numeric_limits<double>::infinity() : *number;
    } else {
      refuse(
          fmt::format("unknown key '{}'; known: m (magnitude), n (ops for each image), p (probability of each), "
                      "mstd, mmax (spread and upper end of the magnitude), inc (0 or 1)",
                      excerpt(part)));
    }
    if (!seen.insert(key).second) {
      refuse(fmt::format("{} comes twice", key));
    }
    if (!last && rest.empty()) {
      refuse("expected a key and its number after the last '-'");
    }
  }
  return options;
}

Policy::Kind parse_policy(std::string_view op, std::string_view text) {
  if (text == "ta_wide") {
    return TrivialAugmentOptions{};
  }
  check(text == "rand" || text.starts_with("rand-"), op,
        "unknown policy '{}'; expected ta_wide, or rand with parts as in rand-m9-mstd0.5-inc1", excerpt(text));
  return parse_rand_augment(op, text);
}

std::vector<PolicyStep> Policy::draw(Draw& draw, int64_t height, int64_t width) const {
  return std::visit([&](const auto& kind) { return draw_steps(kind, options_, height, width, draw); }, kind_);
}

Image Policy::apply(Image image, Draw& draw) const {
  check_image("auto_augment", image);
  for (const PolicyStep& step : this->draw(draw, image.height, image.width)) {
    image = data::apply(step, std::move(image), options_.fill);
  }
  return image;
}

Image apply(const PolicyStep& step, Image image, const Color& fill) {
  const AffineOptions affine{.interpolation = step.interpolation, .fill = fill};
  switch (step.op) {
    case PolicyOp::identity: return image;
    case PolicyOp::autocontrast: return autocontrast(std::move(image));
    case PolicyOp::equalize: return equalize(std::move(image));
    case PolicyOp::invert: return invert(std::move(image));
    case PolicyOp::rotate: return rotate(std::move(image), step.argument, affine);
    case PolicyOp::posterize: return posterize(std::move(image), static_cast<int64_t>(step.argument));
    case PolicyOp::solarize: return solarize(std::move(image), step.argument);
    case PolicyOp::solarize_add: return solarize_add(std::move(image), static_cast<int64_t>(step.argument));
    case PolicyOp::color: return adjust_saturation(std::move(image), step.argument);
    case PolicyOp::contrast: return adjust_contrast(std::move(image), step.argument);
    case PolicyOp::brightness: return adjust_brightness(std::move(image), step.argument);
    case PolicyOp::sharpness: return adjust_sharpness(std::move(image), step.argument);
    case PolicyOp::shear_x: return shear_x(std::move(image), step.argument, affine);
    case PolicyOp::shear_y: return shear_y(std::move(image), step.argument, affine);
    case PolicyOp::translate_x: return translate_x(std::move(image), step.argument, affine);
    case PolicyOp::translate_y: return translate_y(std::move(image), step.argument, affine);
  }
  fail("auto_augment", "step: unknown op {}", static_cast<int>(step.op));
}

}  // namespace norma::data
