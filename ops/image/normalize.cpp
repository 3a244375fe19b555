#include "ops/image/normalize.h"

#include "base/error.h"
#include "base/range.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/image/kernels.h"

#include <fmt/ranges.h>

namespace norma {

namespace {

kernels::ImageMix checked(std::string_view op, const ImagePairMix& mix, int64_t height, int64_t width) {
  check_range(op, "lambda", mix.lambda, Range<double>{0, 1});
  check(mix.top >= 0 && mix.left >= 0 && mix.height >= 0 && mix.width >= 0 && mix.top <= height - mix.height &&
            mix.left <= width - mix.width,
        op, "box: expected one inside {} x {} pixels, got {} x {} from row {} and column {} on", height, width,
        mix.height, mix.width, mix.top, mix.left);
  return {.own = static_cast<float>(mix.lambda),
          .other = static_cast<float>(1 - mix.lambda),
          .any = mix.lambda != 1,
          .replaces = mix.cutmix,
          .top = mix.top,
          .left = mix.left,
          .height = mix.height,
          .width = mix.width};
}

}  // namespace

Tensor normalize_images(const Tensor& x, const Tensor& table, const ImagePairMix& mix) {
  const Op op("normalize_images");
  check_defined(op, "x", x);
  check_defined(op, "table", table);
  check(x.rank() == 4 && x.dtype() == DType::uint8, op, "x: expected (N, C, H, W) of uint8, got {} of {}", x.sizes(),
        to_string(x.dtype()));
  const bool contiguous = x.is_contiguous();
  check(contiguous || x.is_contiguous(MemoryFormat::channels_last), op,
        "x: expected the format contiguous or channels_last, got strides {}", x.strides());
  check(table.sizes() == Sizes{x.size(1), 256} && table.dtype() == DType::float32 && table.is_contiguous(), op,
        "table: expected contiguous ({}, 256) of float32, got {} of {}", x.size(1), table.sizes(),
        to_string(table.dtype()));
  check(table.device() == x.device(), op, "table: expected it on {}, got {}", to_string(x.device()),
        to_string(table.device()));
  const kernels::ImageMix numbers = checked(op, mix, x.size(2), x.size(3));
  Tensor y = empty_strided(x.sizes(), x.strides(), {.dtype = DType::float32, .device = x.device()});
  op.run(kernels::image_kernels, x, table, y)
      ->normalize({.n = x.size(0), .c = x.size(1), .h = x.size(2), .w = x.size(3), .channels_last = !contiguous},
                  static_cast<const uint8_t*>(x.device_pointer()), static_cast<const float*>(table.device_pointer()),
                  numbers, static_cast<float*>(y.device_pointer()));
  return y;
}

}  // namespace norma
