#include "data/augment/color_jitter.h"

#include "base/error.h"
#include "base/excerpt.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace norma::data {

void check_color_jitter(std::string_view op, const ColorJitterOptions& options) {
  const std::array<std::pair<const char*, double>, 3> around_one = {
      {{"brightness", options.brightness}, {"contrast", options.contrast}, {"saturation", options.saturation}}};
  for (const auto& [name, value] : around_one) {
    check_range(op, name, value, kJitter);
  }
  check_range(op, "hue", options.hue, Range<double>{0, 0.5});
}

ColorJitterOptions parse_color_jitter(std::string_view op, std::string_view text) {
  if (text.empty()) {
    return {};
  }
  std::vector<double> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    double number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    const bool whole = error == std::errc() && (rest == end || (*rest == ',' && numbers.size() < 3));
    const bool counts = rest != end || numbers.empty() || numbers.size() >= 2;  // one, three or four
    check(whole && counts, op, "expected one, three or four numbers as in 0.4 or 0.4,0.4,0.4,0.1, got {}",
          excerpt(text));
    numbers.push_back(number);
    if (rest == end) {
      break;
    }
    at = rest + 1;
  }
  ColorJitterOptions options{.brightness = numbers[0], .contrast = numbers[0], .saturation = numbers[0]};
  if (numbers.size() > 1) {
    options = {.brightness = numbers[0],
               .contrast = numbers[1],
               .saturation = numbers[2],
               .hue = numbers.size() == 4 ? numbers[3] : 0};
  }
  check_color_jitter(op, options);
  return options;
}

ColorJitter draw_color_jitter(Draw& draw, const ColorJitterOptions& options) {
  check_color_jitter("color_jitter", options);
  ColorJitter jitter;
  draw.permute(jitter.order);
  const std::array<double, 3> spreads = {options.brightness, options.contrast, options.saturation};
  for (size_t i = 0; i < spreads.size(); ++i) {
    jitter.factors[i] = draw.uniform(std::max(0.0, 1 - spreads[i]), 1 + spreads[i]);
  }
  jitter.factors[3] = draw.uniform(-options.hue, options.hue);
  return jitter;
}

Image apply(const ColorJitter& jitter, const Image& image) {
  check_image("color_jitter", image);
  Image result = image;
  for (const int i : jitter.order) {
    const double factor = jitter.factors[static_cast<size_t>(i)];
    if (i == 3 ? factor == 0 : factor == 1) {
      continue;
    }
    switch (i) {
      case 0: result = adjust_brightness(result, factor); break;
      case 1: result = adjust_contrast(result, factor); break;
      case 2: result = adjust_saturation(result, factor); break;
      default: result = adjust_hue(result, factor);
    }
  }
  return result;
}

}  // namespace norma::data
