#include "data/image_tensor.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <cmath>

namespace norma::data {

Tensor image_to_tensor(const Image& image, const std::array<float, 3>& mean, const std::array<float, 3>& std) {
  check_image("image_to_tensor", image);
  Tensor x = empty({1, image.channels, image.height, image.width}, {.device = kCpu});
  auto* to = x.data<float>();
  for (int64_t c = 0; c < image.channels; ++c) {
    const auto channel = static_cast<size_t>(c);
    for (int64_t i = c; i < static_cast<int64_t>(image.pixels.size()); i += image.channels) {
      *to++ = (static_cast<float>(image.pixels[static_cast<size_t>(i)]) / 255 - mean[channel]) / std[channel];
    }
  }
  return x;
}

Image tensor_to_image(const Tensor& x) {
  check(x.defined(), "tensor_to_image", "x: expected a tensor, got none");
  const int64_t rank = x.rank();
  const bool image = rank == 3 || (rank == 4 && x.size(0) == 1);
  const int64_t channels = image ? x.size(rank - 3) : 0;
  check(image && (channels == 1 || channels == 3) && x.numel() > 0, "tensor_to_image",
        "x: expected the sizes (C, H, W) or (1, C, H, W) with 1 or 3 channels, got {}", to_string(x.sizes()));
  const std::vector<double> values = x.to_vector<double>();
  Image result{.height = x.size(rank - 2), .width = x.size(rank - 1), .channels = channels, .pixels = {}};
  const int64_t pixels = result.height * result.width;
  result.pixels.reserve(values.size());
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      const double value = values[static_cast<size_t>(c * pixels + i)];
      result.pixels.push_back(
          static_cast<uint8_t>(std::isnan(value) ? 0 : std::lround(std::clamp(value, 0.0, 1.0) * 255)));
    }
  }
  return result;
}

}  // namespace norma::data
