#include "data/augment/mix.h"

#include "base/error.h"
#include "core/factory.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace norma::data {

void check_mix(const char* op, const MixOptions& options) {
  for (const auto& [name, alpha] : {std::pair("mixup", options.mixup_alpha), {"cutmix", options.cutmix_alpha}}) {
    check_range(op, name, alpha, kMixAlpha);
    check(alpha == 0 || alpha >= kLeastMixAlpha, op, "{}: expected 0 or at least {}, got {}", name, kLeastMixAlpha,
          alpha);
  }
  check_range(op, "mixup-prob", options.probability, Range<double>{0, 1});
  check_range(op, "mixup-switch-prob", options.switch_probability, Range<double>{0, 1});
}

Rectangle cutmix_box(int64_t height, int64_t width, double lambda, int64_t middle_row, int64_t middle_column) {
  const double side = std::sqrt(1 - lambda);
  // The first and the past-the-end pixel along an axis.
  const auto part = [&](int64_t length, int64_t middle) {
    const auto cut = static_cast<int64_t>(static_cast<double>(length) * side);
    return std::pair(std::max<int64_t>(middle - cut / 2, 0), std::min(middle + (cut + 1) / 2, length));
  };
  const auto [top, bottom] = part(height, middle_row);
  const auto [left, right] = part(width, middle_column);
  return {.top = top, .left = left, .height = bottom - top, .width = right - left};
}

Mix draw_mix(Draw& draw, int64_t height, int64_t width, const MixOptions& options) {
  check_mix("mix", options);
  Mix mix;
  if (!options.any() || !draw.chance(options.probability)) {
    return mix;
  }
  mix.cutmix = options.mixup_alpha > 0 && options.cutmix_alpha > 0 ? draw.chance(options.switch_probability)
                                                                   : options.cutmix_alpha > 0;
  mix.lambda = draw.beta(mix.cutmix ? options.cutmix_alpha : options.mixup_alpha);
  if (mix.cutmix) {
    const int64_t row = draw.integer(0, height - 1);
    mix.box = cutmix_box(height, width, mix.lambda, row, draw.integer(0, width - 1));
    mix.lambda = 1 - static_cast<double>(mix.box.height * mix.box.width) / static_cast<double>(height * width);
  }
  return mix;
}

void mix_images_(Tensor& images, const Mix& mix, std::optional<int64_t> unmixed) {
  check(images.rank() == 4 && images.dtype() == DType::float32, "mix",
        "images: expected (N, C, H, W) of float32, got {} of {}", images.sizes(), to_string(images.dtype()));
  const Strides& strides = images.strides();
  auto* const data = images.data<float>();
  const int64_t n = images.size(0);
  const Rectangle whole{.height = images.size(2), .width = images.size(3)};
  const Rectangle& box = mix.cutmix ? mix.box : whole;
  check_range("mix", "lambda", mix.lambda, Range<double>{0, 1});
  check(box.top >= 0 && box.left >= 0 && box.height >= 0 && box.width >= 0 && box.top <= whole.height - box.height &&
            box.left <= whole.width - box.width,
        "mix", "box: expected one inside {} x {} pixels, got {} x {} from row {} and column {} on", whole.height,
        whole.width, box.height, box.width, box.top, box.left);
  const auto own = static_cast<float>(mix.lambda);
  const auto other = static_cast<float>(1 - mix.lambda);
  if (mix.lambda == 1) {
    return;
  }
  for (int64_t i = 0; i < n / 2; ++i) {
    if (i == unmixed) {
      continue;
    }
    float* const a = data + i * strides[0];
    float* const b = data + (n - 1 - i) * strides[0];
    for (int64_t c = 0; c < images.size(1); ++c) {
      for (int64_t y = box.top; y < box.top + box.height; ++y) {
        for (int64_t x = box.left; x < box.left + box.width; ++x) {
          const int64_t at = c * strides[1] + y * strides[2] + x * strides[3];
          if (mix.cutmix) {
            std::swap(a[at], b[at]);
          } else {
            const float mixed = a[at] * own + b[at] * other;
            b[at] = b[at] * own + a[at] * other;
            a[at] = mixed;
          }
        }
      }
    }
  }
}

Tensor mixed_targets(const Tensor& labels, int64_t num_classes, const Mix& mix, double label_smoothing) {
  check(labels.rank() == 1 && labels.dtype() == DType::int64, "mix", "labels: expected (N) of int64, got {} of {}",
        labels.sizes(), to_string(labels.dtype()));
  check(num_classes > 0, "mix", "num_classes: expected at least 1, got {}", num_classes);
  check_range("mix", "label_smoothing", label_smoothing, Range<double>{.low = 0, .high = 1, .with_high = false});
  const int64_t n = labels.size(0);
  Tensor targets = empty({n, num_classes}, {.device = kCpu});
  auto* const to = targets.data<float>();
  std::fill_n(to, n * num_classes, static_cast<float>(label_smoothing / static_cast<double>(num_classes)));
  const auto* const of = labels.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    check(of[i] >= 0 && of[i] < num_classes, "mix", "labels: expected numbers from 0 to {}, got {}", num_classes - 1,
          of[i]);
    to[i * num_classes + of[i]] += static_cast<float>(mix.lambda * (1 - label_smoothing));
    to[(n - 1 - i) * num_classes + of[i]] += static_cast<float>((1 - mix.lambda) * (1 - label_smoothing));
  }
  return targets;
}

}  // namespace norma::data
