#include "cuda_results.h"
#include "map_norm_cases.h"

// CUDA's kernels of the norms with a formula of their own for each map, beside the CPU's in float64.

using namespace norma;
using namespace norma::test;

namespace {

/// Rounded to a dtype, and then in it or in float64.
Tensor operand(const Tensor& values, DType dtype, bool in_float64, MemoryFormat format, Device device) {
  const DType as = in_float64 ? DType::float64 : dtype;
  return to_device(copy_of(rounded(values, dtype), format, as), device).detach();
}

/// y, dx and the gradients of the parameters, from numbers of `dtype`, in the same or in float64.
Tensors results(const MapNormCase& norm, const Sizes& sizes, Activation activation, MemoryFormat format, Device device,
                DType dtype, bool in_float64 = false, double scale = 1) {
  const Tensor values = random_tensor(sizes, 1);
  change_elements<double>(values, [&](double* elements) {
    for (int64_t i = 0; i < values.numel(); ++i) {
      elements[i] *= scale;
    }
  });
  Tensors inputs{operand(values, dtype, in_float64, format, device).set_requires_grad()};
  const DType of_parameters = dtype == DType::float64 ? DType::float64 : DType::float32;
  for (const Tensor& parameter : map_norm_parameters(norm, sizes[1])) {
    inputs.push_back(
        operand(parameter, of_parameters, in_float64, MemoryFormat::contiguous, device).set_requires_grad());
  }
  const Tensor y = norm.run(inputs, {.activation = activation});
  Tensors all{y};
  for (const Tensor& gradient :
       grad({y}, inputs, {operand(random_tensor(sizes, 9), dtype, in_float64, format, device)})) {
    all.push_back(gradient);
  }
  return all;
}

void check_norm(const MapNormCase& norm, const Sizes& sizes, Activation activation, DType dtype, double scale = 1) {
  const DefaultDeviceGuard guard(kCpu);
  // y and dx are rounded to 16 bits once; float32 adds up no more than some thousand numbers.
  const double tolerance = dtype == DType::float64    ? 1e-11
                           : dtype == DType::float32  ? 2e-5
                           : dtype == DType::bfloat16 ? 0x1.1p-8
                                                      : 0x1.1p-11;
  const Tensors expected =
      on_cpu(results(norm, sizes, activation, MemoryFormat::contiguous, kCpu, dtype, /* in_float64= */ true, scale));
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const Device device : cuda_devices()) {
      const Tensors got = on_cpu(results(norm, sizes, activation, format, device, dtype, false, scale));
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = relative_difference(got[i], expected[i]);
        // The gradients of parameters are sums that cancel.
        const double allowed = i >= 2 && dtype != DType::float64 ? std::max(tolerance, 1e-4) : tolerance;
        CHECK_MESSAGE(difference <= allowed, norm.name, " ", to_string(sizes), " ", to_string(dtype), " ",
                      to_string(format), " ", to_string(activation), ", result ", i, ": ", difference);
      }
    }
  }
}

}  // namespace

TEST_CASE("cuda map norms: every function, dtype and memory format") {
  // Maps of one pixel, of whole vectors and of others; fewer and more channels than a warp; several images.
  for (const Sizes& sizes : {Sizes{3, 5, 3, 7}, Sizes{2, 40, 4, 4}, Sizes{1, 33, 6, 5}, Sizes{4, 1, 5, 4}}) {
    for (const MapNormCase& norm : map_norm_cases()) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::float64}) {
        for (const Activation activation : {Activation::identity, Activation::relu}) {
          check_norm(norm, sizes, activation, dtype);
        }
      }
    }
  }
}

TEST_CASE("cuda map norms: maps of many pixels, which several blocks or all threads of one share, and many maps") {
  for (const Sizes& sizes : {Sizes{1, 5, 97, 86}, Sizes{2, 3, 19, 37}, Sizes{1, 2, 128, 80}, Sizes{3, 2100, 1, 2}}) {
    for (const MapNormCase& norm : map_norm_cases()) {
      check_norm(norm, sizes, Activation::identity, DType::float32);
    }
  }
}

TEST_CASE("cuda map norms: local response norm where squares leave float32") {
  const auto norms = map_norm_cases();
  for (const double scale : {1e-25, 1e22}) {
    for (const size_t i : {norms.size() - 2, norms.size() - 1}) {
      check_norm(norms[i], {2, 7, 3, 4}, Activation::relu, DType::float32, scale);
    }
  }
}

TEST_CASE("cuda map norms: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  for (const MapNormCase& norm : map_norm_cases()) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (const Sizes& sizes : {Sizes{2, 40, 6, 5}, Sizes{1, 3, 19, 37}}) {
        check_any_order(norm.name, [&](Device device) {
          return results(norm, sizes, Activation::relu, format, device, DType::float32);
        });
      }
    }
  }
}
