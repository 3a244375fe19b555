#include "core/base_ops.h"
#include "core/factory.h"
#include "ops/image/normalize.h"
#include "ops/ptx_results.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <limits>

// Kernels that move and convert numbers, from the PTX that nvcc made and compiled for the host: see ptx_results.h.

using namespace norma;
using namespace norma::test;

namespace {

constexpr DType kAll[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::uint8};

/// Numbers that every dtype can hold the whole part of.
Tensor small_numbers(const Sizes& sizes, uint64_t seed) {
  const Tensor numbers = random_tensor(sizes, seed);
  change_elements<double>(numbers, [&](double* elements) {
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      elements[i] = std::fabs(elements[i]) * 30;
    }
  });
  return numbers;
}

/// Numbers at which floats are rounded, lose digits, or leave their range. No NaN, of which there are many.
Tensor edges() {
  std::vector<double> numbers = {0.0, -0.0, 1e-45, 6e-8, 2.9e-8, 6.1e-5, 65504, 65520, 1e5, 3.4e38, 3.5e38, 1e300};
  numbers.push_back(std::numeric_limits<double>::infinity());
  for (int i = 0; i < 64; ++i) {  // halfway between two numbers of 16 bits, a little above and below
    const double near = 1 + (2 * i + 1) * 0x1p-9;
    for (const double number : {near, near * (1 + 0x1p-20), near * (1 - 0x1p-20), near * (1 + 0x1p-40)}) {
      numbers.push_back(number);
      numbers.push_back(-number * 0x1p-16);
      numbers.push_back(number * 0x1p-132);
    }
  }
  return from_vector(numbers, {static_cast<int64_t>(numbers.size())}, {.dtype = DType::float64, .device = kCpu});
}

/// Tensors around a vector and a piece of a kernel, half of which begin between two vectors, and one in channels_last.
Tensors many(DType dtype, uint64_t seed, Device device) {
  Tensors result;
  const auto add = [&](const Sizes& sizes, const Strides& strides, int64_t offset) {
    const Tensor numbers = small_numbers({sizes.numel() + offset}, seed++);
    result.push_back(
        alias(to_device(copy_of(numbers, MemoryFormat::contiguous, dtype), device), sizes, strides, offset));
  };
  for (const int64_t count : {1, 5, 8, 4095, 4096, 4097, 0}) {
    add({count}, {1}, 0);
    add({count}, {1}, 1);
  }
  const Sizes image = {2, 3, 5, 7};
  add(image, strides_for(image, MemoryFormat::channels_last), 0);
  return result;
}

}  // namespace

TEST_CASE("ptx: conversions and strided copies") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      const std::string name = fmt::format("from {} to {}", to_string(from), to_string(to));
      compare_ptx(name, [&](Device device) {
        const Tensor x = to_device(copy_of(small_numbers({2, 5, 6, 7}, 1), MemoryFormat::contiguous, from), device);
        Tensors results{copy_of(x, MemoryFormat::contiguous, to), copy_of(x, MemoryFormat::channels_last, to),
                        copy_of(permute(x, {3, 1, 0, 2}), MemoryFormat::contiguous, to)};
        const Tensor wide = to_device(zeros({3, 2, 5, 6, 7}, {.dtype = to, .device = kCpu}), device);
        copy_into(x, wide);
        results.push_back(wide);
        return results;
      });
      if (is_floating(from) && is_floating(to)) {
        compare_ptx(name + ", edges", [&](Device device) {
          const Tensor x = to_device(copy_of(edges(), MemoryFormat::contiguous, from), device);
          return Tensors{x, copy_of(x, MemoryFormat::contiguous, to)};
        });
      }
    }
  }
}

TEST_CASE("ptx: copies and sums of many tensors") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      compare_ptx(fmt::format("from {} to {}", to_string(from), to_string(to)), [&](Device device) {
        Tensors ys = many(to, 50, device);
        copy_all_into(many(from, 1, device), ys);
        return ys;
      });
    }
  }
  for (const auto& [from, to] : {std::pair(DType::float16, DType::float32),
                                 {DType::bfloat16, DType::float32},
                                 {DType::float32, DType::float32},
                                 {DType::float64, DType::float64}}) {
    compare_ptx(fmt::format("a factor, from {}", to_string(from)), [&, from = from, to = to](Device device) {
      Tensors ys = many(to, 50, device);
      const Tensor factor = full({}, 0.1, {.dtype = DType::float64, .device = device});
      copy_all_into(many(from, 1, device), ys, factor);
      return ys;
    });
  }
  for (const DType dtype : kPtxDTypes) {
    compare_ptx(fmt::format("sums of {}", to_string(dtype)), [&](Device device) {
      Tensors ys = many(dtype, 50, device);
      accumulate_all_into(ys, many(dtype, 1, device));
      return ys;
    });
  }
}

TEST_CASE("ptx: images of bytes") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  Generator generator(5);
  for (const Sizes& sizes : {Sizes{5, 3, 7, 9}, Sizes{4, 1, 5, 5}, Sizes{1, 2, 3, 1}}) {
    const Tensor numbers = randint(0, 256, sizes, {.dtype = DType::int64, .device = kCpu}, generator);
    const Tensor table = random_tensor({sizes[1], 256}, 7, DType::float32);
    for (const MemoryFormat format : kPtxFormats) {
      for (const ImagePairMix& mix :
           {ImagePairMix{}, ImagePairMix{.lambda = 0.3}, ImagePairMix{.lambda = 0},
            ImagePairMix{.lambda = 0.5, .cutmix = true, .top = 1, .left = 0, .height = 2, .width = 1}}) {
        compare_ptx(fmt::format("{} {}", to_string(sizes), to_string(format)), [&](Device device) {
          const Tensor x = to_device(copy_of(numbers, format, DType::uint8), device);
          return Tensors{normalize_images(x, to_device(table, device), mix)};
        });
      }
    }
  }
}

TEST_CASE("ptx: rows by number") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  Generator generator(3);
  for (const Sizes& sizes : {Sizes{13, 40}, Sizes{3, 9, 5}, Sizes{2, 16, 3, 5}}) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(sizes.size()); ++axis) {
      // Some rows come several times, so that their gradients are added up.
      const Tensor index =
          randint(0, sizes[static_cast<size_t>(axis)], {21}, {.dtype = DType::int64, .device = kCpu}, generator);
      for (const MemoryFormat format : kPtxFormats) {
        compare(fmt::format("rows of {} along {}", to_string(sizes), axis), kPtxDTypes, format, 0, [&](const Put& put) {
          const Tensor x = put(random_tensor(sizes, 1));
          const Tensor rows = to_device(index, x.device());
          return with_gradients([&](const Tensors& in) { return index_select(in[0], axis, rows); }, {x}, put);
        });
      }
    }
  }
  const Tensor classes = randint(0, 11, {70}, {.dtype = DType::int64, .device = kCpu}, generator);
  compare("an element of each row", kPtxDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
    const Tensor x = put(random_tensor({70, 11}, 2));
    const Tensor index = to_device(classes, x.device());
    return with_gradients([&](const Tensors& in) { return gather_rows(in[0], index); }, {x}, put);
  });
}
