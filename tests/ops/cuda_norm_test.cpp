#include "ops/cuda_results.h"
#include "ops/norm_table.h"

// CUDA's norm kernels beside the definition in float64: every walk, dtype and memory format at sizes around the
// kernels' limits, operands that no vector may be loaded from, any order of threads. The other tests of norms run on
// cuda-emulated as well.

using namespace norma;
using namespace norma::test;

namespace {

/// Every kernel with more rows, columns and elements than it takes at once, and with ends that fill nothing.
std::vector<SpecCase> cases() {
  std::vector<SpecCase> all;
  const Sizes kImages[] = {{3, 8, 5, 7},  {2, 96, 4, 6}, {70, 20, 4, 4}, {2, 64, 16, 16},
                           {5, 33, 3, 1}, {2, 33, 6, 5}, {1, 768, 2, 2}};
  for (const Sizes& sizes : kImages) {
    const int64_t groups = sizes[1] % 4 == 0 ? 4 : 3;
    all.push_back({"batch", sizes, {.reduce = {0, 2, 3}, .affine = {1}}});
    all.push_back({"layer2d", sizes, {.reduce = {1}, .affine = {1}, .eps = 1e-6}});
    all.push_back({"group", sizes, {.reduce = {1, 2, 3}, .affine = {1}, .groups = groups}});
    if (sizes[2] * sizes[3] > 1) {
      all.push_back({"instance", sizes, {.reduce = {2, 3}, .affine = {1}}});
    }
    if (sizes[1] * sizes[2] * sizes[3] <= 2400) {
      all.push_back({"layer", sizes, {.reduce = {1, 2, 3}, .affine = {1, 2, 3}}});
    }
  }
  all.push_back({"rms2d", {3, 24, 5, 4}, {.reduce = {1}, .affine = {1}, .centring = Centring::none}});
  all.push_back(
      {"simple2d", {3, 24, 5, 4}, {.reduce = {1}, .affine = {1}, .centring = Centring::deviation, .correction = 1}});
  all.push_back({"no affine", {3, 24, 5, 4}, {.reduce = {2, 3}}});
  all.push_back({"weights along rows and columns", {3, 8, 5, 4}, {.reduce = {1}, .affine = {1, 2}}});
  all.push_back({"a weight for each pixel", {3, 10, 5, 4}, {.reduce = {1, 2}, .affine = {2, 3}, .groups = 2}});
  all.push_back({"a weight for each pixel", {2, 80, 6, 3}, {.reduce = {1, 2}, .affine = {2, 3}, .groups = 2}});
  all.push_back({"weights of the batch", {6, 8, 5, 4}, {.reduce = {2, 3}, .affine = {0, 1}}});
  // Rows of every length that a team of lanes and a block of threads take, and one that none takes.
  for (const int64_t features : {1, 7, 32, 64, 192, 384, 1000, 1024, 1536, 2048, 4104, 33004}) {
    all.push_back({"rows", {features > 2000 ? 2 : 70, features}, {.reduce = {1}, .affine = {1}}});
  }
  return all;
}

/// Layer norm 2d with planes that are no multiple of a vector, more channels than threads take at once, tiles that end
/// behind a plane, the most channels that these kernels take, and one more.
std::vector<SpecCase> cases_of_pixels() {
  std::vector<SpecCase> all;
  for (const Sizes& sizes : {Sizes{2, 200, 7, 7}, Sizes{1, 776, 7, 7}, Sizes{1, 390, 14, 14}, Sizes{2, 12, 15, 15},
                             Sizes{1, 1100, 3, 2}, Sizes{1, 1100, 5, 5}, Sizes{1, 2048, 4, 4}, Sizes{1, 2304, 7, 7},
                             Sizes{1, 4000, 4, 4}, Sizes{1, 4001, 2, 2}, Sizes{1, 3, 40, 33}, Sizes{1, 96, 20, 18}}) {
    all.push_back({"layer2d", sizes, {.reduce = {1}, .affine = {1}, .eps = 1e-6}});
  }
  return all;
}

/// y, dx, dweight, dbias, dresidual, in float64 on the CPU. `off`: the number of the operand that does not begin at 16
/// bytes, if any.
Tensors results_on(Device device, const SpecCase& c, const NormOperands& of, Activation activation, int off = -1) {
  int number = 0;
  const auto there = [&](const Tensor& operand) {
    const bool shifted = number++ == off;
    const Tensor result = operand.defined() ? to_device(operand, device) : operand;
    return shifted && operand.defined() ? unaligned(result) : result;
  };
  const NormOperands moved{there(of.x), there(of.weight), there(of.bias), there(of.residual), there(of.dy)};
  Tensors defined;
  for (const Tensor& result : norm_results(c.spec, moved, activation)) {
    if (result.defined()) {
      defined.push_back(result);
    }
  }
  return on_cpu(defined);
}

NormOperands operands_in(const SpecCase& c, DType dtype, MemoryFormat format, bool with_residual) {
  NormOperands of = operands_of(c, dtype, with_residual);
  if (c.spec.affine.empty()) {
    of.weight = of.bias = Tensor();
  }
  for (Tensor* image : {&of.x, &of.residual, &of.dy}) {
    *image = image->defined() && image->rank() == 4 ? copy_of(*image, format) : *image;
  }
  return of;
}

void check_case(const SpecCase& c, Activation activation, bool with_residual, MemoryFormat format, DType dtype,
                bool each_unaligned = false) {
  // y and dx are rounded to 16 bits once; sums are float32 or better.
  const double tolerance = dtype == DType::float64    ? 1e-12
                           : dtype == DType::float32  ? 1e-5
                           : dtype == DType::bfloat16 ? 0x1p-8
                                                      : 0x1p-10;
  const DefaultDeviceGuard guard(kCpu);
  const NormOperands of = operands_in(c, dtype, format, with_residual);
  // By the definition: the CPU's kernels share formulas with CUDA's.
  const Tensors expected = [&] {
    const ByReference by_definition;
    NormOperands wide = of;
    for (Tensor* operand : {&wide.x, &wide.weight, &wide.bias, &wide.residual, &wide.dy}) {
      *operand = operand->defined() ? to(*operand, DType::float64) : *operand;
    }
    return results_on(kCpu, c, wide, activation);
  }();
  for (const Device device : cuda_devices()) {
    for (int off = each_unaligned ? 0 : -1; off < (each_unaligned ? 5 : 0); ++off) {
      const Tensors got = results_on(device, c, of, activation, off);
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = relative_difference(got[i], expected[i]);
        CHECK_MESSAGE(difference <= tolerance, c.name, " ", to_string(c.sizes), " ", to_string(dtype), " ",
                      to_string(format), " ", to_string(activation), with_residual ? " with residual" : "", ", result ",
                      i, ": ", difference);
      }
    }
  }
}

constexpr DType kDTypes[] = {DType::float32, DType::bfloat16, DType::float16, DType::float64};
constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

/// All results where one operand in turn begins between two vectors.
void check_between_vectors(const std::vector<SpecCase>& all, const std::vector<Activation>& activations) {
  for (const SpecCase& c : all) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const MemoryFormat format : kFormats) {
        if (c.sizes.size() == 4 || format == MemoryFormat::contiguous) {
          for (const Activation activation : activations) {
            check_case(c, activation, /* with_residual= */ true, format, dtype, /* each_unaligned= */ true);
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("cuda norms: forward and backward of every walk, dtype and memory format") {
  for (const SpecCase& c : cases()) {
    for (const DType dtype : kDTypes) {
      for (const MemoryFormat format : kFormats) {
        if (c.sizes.size() == 4 || format == MemoryFormat::contiguous) {
          check_case(c, Activation::identity, /* with_residual= */ false, format, dtype);
        }
      }
    }
  }
}

TEST_CASE("cuda norms: pixels of any number of channels") {
  for (const SpecCase& c : cases_of_pixels()) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      check_case(c, Activation::identity, /* with_residual= */ false, MemoryFormat::contiguous, dtype);
    }
    check_case(c, Activation::silu, /* with_residual= */ true, MemoryFormat::contiguous, DType::bfloat16);
  }
}

TEST_CASE("cuda norms: pixels and rows whose squares leave the range of float32") {
  for (const Sizes& sizes : {Sizes{2, 24, 7, 7}, Sizes{1, 40, 8, 6}}) {
    SpecCase c{"layer2d", sizes, {.reduce = {1}, .affine = {1}, .eps = 0}};
    for (const MemoryFormat format : kFormats) {
      const DefaultDeviceGuard guard(kCpu);
      NormOperands of = operands_in(c, DType::float32, format, /* with_residual= */ false);
      of.x = of.x * 1e25;  // the squares are infinite in float32
      const Tensors expected = [&] {
        const ByReference by_definition;
        NormOperands wide = of;
        for (Tensor* operand : {&wide.x, &wide.weight, &wide.bias, &wide.dy}) {
          *operand = to(*operand, DType::float64);
        }
        return results_on(kCpu, c, wide, Activation::identity);
      }();
      for (const Device device : cuda_devices()) {
        const Tensors got = results_on(device, c, of, Activation::identity);
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
          CHECK_MESSAGE(relative_difference(got[i], expected[i]) <= 1e-5, to_string(sizes), " ", to_string(format),
                        ", result ", i);
        }
      }
    }
  }
}

TEST_CASE("cuda norms: each operand begins between two vectors" * doctest::test_suite("again")) {
  std::vector<SpecCase> all = cases();
  std::erase_if(all, [](const SpecCase& c) { return c.sizes.size() == 2 && (c.sizes[1] < 32 || c.sizes[1] > 1536); });
  check_between_vectors(all, {Activation::relu, Activation::silu});
}

// The same where each instruction is interpreted: vectors in every kernel that has them.
TEST_CASE("cuda norms: an operand begins between two vectors, at one size for each kernel") {
  const Sizes images{2, 16, 4, 8};
  check_between_vectors({{"batch", images, {.reduce = {0, 2, 3}, .affine = {1}}},
                         {"layer2d", images, {.reduce = {1}, .affine = {1}, .eps = 1e-6}},
                         {"group", images, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4}},
                         {"rows by lanes", {5, 64}, {.reduce = {1}, .affine = {1}}},
                         {"rows by blocks", {2, 4096}, {.reduce = {1}, .affine = {1}}}},
                        {Activation::relu});
}

TEST_CASE("cuda norms: the same bits each time, in any order of threads") {
  const SpecCase kCases[] = {{"batch", {6, 24, 6, 4}, {.reduce = {0, 2, 3}, .affine = {1}}},
                             {"layer2d", {6, 24, 6, 4}, {.reduce = {1}, .affine = {1}}},
                             {"group", {6, 24, 6, 4}, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4}}};
  for (const SpecCase& c : kCases) {
    for (const MemoryFormat format : kFormats) {
      const DefaultDeviceGuard guard(kCpu);
      const NormOperands of = operands_in(c, DType::float32, format, /* with_residual= */ true);
      check_any_order(c.name, [&](Device device) { return results_on(device, c, of, Activation::relu); });
    }
  }
}
