#include "cuda_results.h"
#include "norm_reference.h"
#include "ops/norm/norm.h"
#include "support.h"

// CUDA's norm kernels beside the definition in float64: every walk, dtype, memory format, kind of statistics and
// fusion.

using namespace norma;
using namespace norma::test;

namespace {

struct NormCase {
  std::string name;
  Sizes sizes;
  NormSpec spec;
};

/// Every kernel with more rows, columns and elements than it takes at once, and with ends that fill nothing.
std::vector<NormCase> cases() {
  std::vector<NormCase> all;
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

struct Operands {
  Tensor x, weight, bias, residual, dy;
};

/// y, dx, dweight, dbias, dresidual, in float64 on the CPU. `off`: the operand that does not begin at 16 bytes.
Tensors results(const NormCase& c, const Operands& of, Activation activation, Device device, MemoryFormat format,
                DType dtype, const Tensor* off = nullptr) {
  const DType parameter_dtype = dtype == DType::float64 ? DType::float64 : DType::float32;
  const auto leaf = [&](const Tensor& values, DType as) -> Tensor {
    if (!values.defined()) {
      return {};
    }
    Tensor result = to_device(copy_of(values, values.rank() == 4 ? format : MemoryFormat::contiguous, as), device);
    return (&values == off ? unaligned(result) : result.detach()).set_requires_grad();
  };
  const Tensors inputs{leaf(of.x, dtype), leaf(of.weight, parameter_dtype), leaf(of.bias, parameter_dtype),
                       leaf(of.residual, dtype)};
  const Tensor y = norm_act(inputs[0], c.spec, inputs[1], inputs[2], {activation, inputs[3]});
  Tensors defined;
  for (const Tensor& input : inputs) {
    if (input.defined()) {
      defined.push_back(input);
    }
  }
  Tensors all{y};
  const Tensors gradients = grad({y}, defined, {leaf(of.dy, dtype).detach()});
  all.insert(all.end(), gradients.begin(), gradients.end());
  return on_cpu(all);
}

void check_case(const NormCase& c, Activation activation, bool with_residual, MemoryFormat format, DType dtype,
                bool each_unaligned = false) {
  // y and dx are rounded to 16 bits once; sums are float32 or better.
  const double tolerance = dtype == DType::float64    ? 1e-12
                           : dtype == DType::float32  ? 1e-5
                           : dtype == DType::bfloat16 ? 0x1p-8
                                                      : 0x1p-10;
  const DefaultDeviceGuard guard(kCpu);
  Sizes affine;
  for (const int64_t axis : c.spec.affine) {
    affine.push_back(c.sizes[axis]);
  }
  Operands of;
  of.x = rounded(random_tensor(c.sizes, 1), dtype);
  of.dy = rounded(random_tensor(c.sizes, 2), dtype);
  if (!c.spec.affine.empty()) {
    of.weight = rounded(random_tensor(affine, 3), DType::float32);
    of.bias = rounded(random_tensor(affine, 4), DType::float32);
  }
  if (with_residual) {
    of.residual = rounded(random_tensor(c.sizes, 5), dtype);
  }
  // By the definition: the CPU's kernels share formulas with CUDA's.
  const Tensors expected = [&] {
    const ByReference guard_of_definition;
    return results(c, of, activation, kCpu, format, DType::float64);
  }();
  std::vector<const Tensor*> offs{nullptr};
  if (each_unaligned) {
    offs = {&of.x, &of.weight, &of.bias, &of.residual, &of.dy};
  }
  for (const Device device : cuda_devices()) {
    for (const Tensor* off : offs) {
      const Tensors got = results(c, of, activation, device, format, dtype, off);
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

}  // namespace

TEST_CASE("cuda norms: forward and backward of every walk, dtype and memory format") {
  for (const NormCase& c : cases()) {
    for (const DType dtype : kDTypes) {
      for (const MemoryFormat format : kFormats) {
        if (c.sizes.size() == 4 || format == MemoryFormat::contiguous) {
          check_case(c, Activation::identity, /* with_residual= */ false, format, dtype);
        }
      }
    }
  }
}

TEST_CASE("cuda norms: each operand begins between two vectors") {
  for (const NormCase& c : cases()) {
    if (c.sizes.size() == 2 && (c.sizes[1] < 32 || c.sizes[1] > 1536)) {
      continue;
    }
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const MemoryFormat format : kFormats) {
        if (c.sizes.size() == 4 || format == MemoryFormat::contiguous) {
          for (const Activation activation : {Activation::relu, Activation::silu}) {
            check_case(c, activation, /* with_residual= */ true, format, dtype, /* each_unaligned= */ true);
          }
        }
      }
    }
  }
}

TEST_CASE("cuda norms: activations and residuals") {
  const Sizes kSizes[] = {{3, 16, 6, 4}, {2, 12, 3, 5}};  // bits that fill bytes, and bits that do not
  for (const Sizes& sizes : kSizes) {
    const NormCase kCases[] = {{"batch", sizes, {.reduce = {0, 2, 3}, .affine = {1}}},
                               {"layer2d", sizes, {.reduce = {1}, .affine = {1}}},
                               {"group", sizes, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4}}};
    for (const NormCase& c : kCases) {
      for (const Activation activation : {Activation::relu, Activation::gelu, Activation::silu}) {
        for (const bool with_residual : {false, true}) {
          for (const DType dtype : {DType::float32, DType::float64}) {
            for (const MemoryFormat format : kFormats) {
              check_case(c, activation, with_residual, format, dtype);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cuda norms: every kind of statistics, at a mean that is large against the deviation") {
  for (const Device device : cuda_devices()) {
    for (const Statistics statistics : all_statistics()) {
      for (const MemoryFormat format : kFormats) {
        for (const Axes& reduce : {Axes{0, 2, 3}, Axes{1}, Axes{1, 2, 3}, Axes{2, 3}}) {
          CAPTURE(to_string(statistics));
          CAPTURE(to_string(reduce));
          const DefaultDeviceGuard guard(kCpu);
          const Tensor far = copy_of(random_tensor({4, 24, 6, 5}, 1), format, DType::float32);
          change_elements<float>(far, [&](float* elements) {
            for (int64_t i = 0; i < far.numel(); ++i) {
              elements[i] += statistics == Statistics::sum_of_squares ? 1 : 1e4F;
            }
          });
          const NormSpec spec{.reduce = reduce, .statistics = statistics};
          const NormStatistics expected = norm_statistics(copy_of(far, format, DType::float64), spec);
          const NormStatistics got = norm_statistics(to_device(far, device), spec);
          const bool exact = statistics == Statistics::stable || statistics == Statistics::compensated;
          CHECK(max_difference(copy_of(to_device(got.mean, kCpu), MemoryFormat::preserve, DType::float64),
                               expected.mean) <= (exact ? 5e-4 : 5e-3));
          CHECK(max_difference(copy_of(to_device(got.var, kCpu), MemoryFormat::preserve, DType::float64),
                               expected.var) <= (exact ? 1e-5 : 1e-2));
        }
      }
    }
  }
}

TEST_CASE("cuda norms: the first elements are far from the others") {
  for (const Device device : cuda_devices()) {
    for (const MemoryFormat format : kFormats) {
      for (const Axes& reduce : {Axes{0, 2, 3}, Axes{1}, Axes{1, 2, 3}, Axes{2, 3}}) {
        CAPTURE(to_string(reduce));
        const DefaultDeviceGuard guard(kCpu);
        const Tensor x = copy_of(random_tensor({4, 24, 6, 5}, 1), format, DType::float32);
        change_elements<float>(x, [&](float* elements) {
          for (int64_t i = 0; i < x.numel(); ++i) {
            elements[i] += i < 100 ? 0 : 3e5F;
          }
        });
        const NormSpec spec{.reduce = reduce};
        const Tensor expected = normalize(copy_of(x, format, DType::float64), spec);
        const Tensor got = to_device(normalize(to_device(x, device), spec), kCpu);
        CHECK(max_difference(copy_of(got, format, DType::float64), expected) <= 2e-5);
      }
    }
  }
}

TEST_CASE("cuda norms: numbers whose squares leave float32, infinities, NaN") {
  for (const Device device : cuda_devices()) {
    for (const MemoryFormat format : kFormats) {
      for (const Axes& reduce : {Axes{0, 2, 3}, Axes{1}, Axes{1, 2, 3}, Axes{2, 3}}) {
        for (const float scale : {1e25F, 1e-25F, INFINITY, NAN}) {
          CAPTURE(scale);
          CAPTURE(to_string(reduce));
          const DefaultDeviceGuard guard(kCpu);
          const Tensor x = copy_of(random_tensor({2, 8, 4, 4}, 1), format, DType::float32);
          change_elements<float>(x, [&](float* elements) {
            for (int64_t i = 0; i < x.numel(); ++i) {
              elements[i] = std::isfinite(scale) ? elements[i] * scale : i % 90 == 7 ? scale : elements[i];
            }
          });
          const NormSpec spec{.reduce = reduce, .eps = 0};
          const Tensor expected = normalize(x, spec);
          const Tensor got = to_device(normalize(to_device(x, device), spec), kCpu);
          const std::vector<float> a = expected.to_vector<float>();
          const std::vector<float> b = got.to_vector<float>();
          bool same = true;
          for (size_t i = 0; i < a.size(); ++i) {
            same = same && (std::isnan(a[i]) ? std::isnan(b[i]) : std::abs(a[i] - b[i]) <= 1e-5F);
          }
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("cuda norms: the same bits each time, in any order of threads") {
  const NormCase kCases[] = {{"batch", {6, 24, 6, 4}, {.reduce = {0, 2, 3}, .affine = {1}}},
                             {"layer2d", {6, 24, 6, 4}, {.reduce = {1}, .affine = {1}}},
                             {"group", {6, 24, 6, 4}, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4}}};
  for (const NormCase& c : kCases) {
    for (const MemoryFormat format : kFormats) {
      const DefaultDeviceGuard guard(kCpu);
      const Operands of{random_tensor(c.sizes, 1), random_tensor({c.sizes[1]}, 2), random_tensor({c.sizes[1]}, 3),
                        random_tensor(c.sizes, 4), random_tensor(c.sizes, 5)};
      check_any_order(c.name,
                      [&](Device device) { return results(c, of, Activation::relu, device, format, DType::float32); });
    }
  }
}
