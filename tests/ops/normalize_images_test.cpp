#include "ops/image/normalize.h"

#include "cuda_devices.h"
#include "ops/shape/view.h"
#include "support.h"

using namespace norma;
using namespace norma::test;

namespace {

Tensor bytes_of(const Sizes& sizes, MemoryFormat format) {
  Generator generator(5);
  const Tensor numbers = randint(0, 256, sizes, {.dtype = DType::int64, .device = kCpu}, generator);
  return copy_of(numbers, format, DType::uint8);
}

/// The definition, element by element.
std::vector<float> expected_of(const Tensor& x, const Tensor& table, const ImagePairMix& mix) {
  const auto bytes = x.to_vector<int64_t>();
  const auto numbers = table.to_vector<float>();
  const int64_t n = x.size(0), c = x.size(1), h = x.size(2), w = x.size(3);
  const auto own = static_cast<float>(mix.lambda);
  const auto other = static_cast<float>(1 - mix.lambda);
  std::vector<float> result;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t image = i / (c * h * w), channel = i / (h * w) % c, row = i / w % h, column = i % w;
    const auto value_at = [&](int64_t in_image) {
      return numbers[static_cast<size_t>(channel * 256 +
                                         bytes[static_cast<size_t>(i + (in_image - image) * c * h * w)])];
    };
    const int64_t partner = n - 1 - image;
    float value = value_at(image);
    if (partner != image && mix.lambda != 1) {
      const bool in_box =
          row >= mix.top && row < mix.top + mix.height && column >= mix.left && column < mix.left + mix.width;
      if (!mix.cutmix) {
        value = value * own + value_at(partner) * other;
      } else if (in_box) {
        value = value_at(partner);
      }
    }
    result.push_back(value);
  }
  return result;
}

}  // namespace

TEST_CASE("cuda images: bytes become numbers by the table, mixed with their partners, with the same bits everywhere") {
  const DefaultDeviceGuard guard(kCpu);
  std::vector<Device> devices = cuda_devices();
  devices.push_back(kCpu);
  for (const Sizes& sizes : {Sizes{5, 3, 7, 9}, Sizes{4, 1, 5, 5}, Sizes{1, 2, 3, 1}, Sizes{0, 3, 4, 4}}) {
    const Tensor table = random_tensor({sizes[1], 256}, 7, DType::float32);
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const Tensor x = bytes_of(sizes, format);
      for (const ImagePairMix& mix :
           {ImagePairMix{}, ImagePairMix{.lambda = 0.3}, ImagePairMix{.lambda = 0},
            ImagePairMix{.lambda = 0.5, .cutmix = true, .top = 1, .left = 0, .height = 2, .width = 1},
            ImagePairMix{.lambda = 0.5, .cutmix = true},
            ImagePairMix{.lambda = 1, .cutmix = true, .height = 3, .width = 1}}) {
        for (const Device device : devices) {
          const Tensor y = normalize_images(to_device(x, device), to_device(table, device), mix);
          CHECK(y.device() == device);
          CHECK(y.strides() == x.strides());
          CHECK_MESSAGE(to_device(y, kCpu).to_vector<float>() == expected_of(x, table, mix), to_string(device), " ",
                        to_string(sizes), " lambda ", mix.lambda, " cutmix ", mix.cutmix);
        }
      }
    }
  }
}

TEST_CASE("normalize_images: errors") {
  const DefaultDeviceGuard guard(kCpu);
  const Tensor x = bytes_of({2, 3, 4, 5}, MemoryFormat::contiguous);
  const Tensor table = random_tensor({3, 256}, 7, DType::float32);
  CHECK(error_of([&] {
          normalize_images(zeros({2, 3, 4, 5}), table);
        }) == "normalize_images: x: expected (N, C, H, W) of uint8, got [2, 3, 4, 5] of float32");
  CHECK(error_of([&] { normalize_images(select(x, 0, 0), table); }) ==
        "normalize_images: x: expected (N, C, H, W) of uint8, got [3, 4, 5] of uint8");
  CHECK(error_of([&] { normalize_images(transpose(x, 2, 3), table); }) ==
        "normalize_images: x: expected the format contiguous or channels_last, got strides [60, 20, 1, 5]");
  CHECK(error_of([&] {
          normalize_images(x, zeros({2, 256}));
        }) == "normalize_images: table: expected contiguous (3, 256) of float32, got [2, 256] of float32");
  CHECK(error_of([&] { normalize_images(x, to_device(table, kCudaEmulated)); }) ==
        "normalize_images: table: expected it on cpu, got cuda-emulated:0");
  CHECK(error_of([&] { normalize_images(x, table, {.lambda = 1.5}); }) ==
        "normalize_images: lambda: expected a number from 0 to 1, got 1.5");
  CHECK(error_of([&] { normalize_images(x, table, {.cutmix = true, .top = 3, .height = 2, .width = 1}); }) ==
        "normalize_images: box: expected one inside 4 x 5 pixels, got 2 x 1 from row 3 and column 0 on");
}
