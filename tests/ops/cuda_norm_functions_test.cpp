#include "core/copy.h"
#include "core/tape.h"
#include "cuda_devices.h"
#include "ops/map_norm/norms.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

// Every norm function on CUDA's kernels: the numbers are those of the CPU, to what another order of sums may change.
// The memory of the emulated device stops a host that looks into it. The default device stays the CPU, so that a tensor
// that is made without the device of its input is found, too.

using namespace norma;
using namespace norma::test;

namespace {

/// x (3, 8, 5, 7) and parameters of one number per channel, on one device.
struct Operands {
  Device device;
  DType dtype;
  MemoryFormat format;
  bool off = false;  ///< operands begin between two vectors

  [[nodiscard]] Tensor x(uint64_t seed, const Sizes& sizes = {3, 8, 5, 7}) const {
    return leaf(copy_of(random_tensor(sizes, seed), format, dtype));
  }
  [[nodiscard]] Tensor parameter(uint64_t seed, const Sizes& sizes = {8}) const {
    return leaf(random_tensor(sizes, seed, dtype == DType::float64 ? DType::float64 : DType::float32));
  }
  /// A running variance.
  [[nodiscard]] Tensor positive(uint64_t seed) const {
    const Tensor values = random_tensor({8}, seed);
    return to_device(copy_of(add(mul(values, values), 0.1), MemoryFormat::preserve, parameter_dtype()), device);
  }
  [[nodiscard]] Tensor running(uint64_t seed) const { return parameter(seed).detach(); }
  /// On the device.
  [[nodiscard]] Tensor there(const Tensor& values) const {
    const Tensor result = to_device(values, device).detach();
    return off ? unaligned(result) : result;
  }

 private:
  [[nodiscard]] DType parameter_dtype() const { return dtype == DType::float64 ? DType::float64 : DType::float32; }
  [[nodiscard]] Tensor leaf(const Tensor& values) const { return there(values).set_requires_grad(); }
};

/// What a case computes: `inputs` want gradients of y; `state` was changed on the way.
struct Run {
  Tensors inputs;
  Tensor y;
  Tensors state = {};
};
struct Case {
  std::string name;
  std::function<Run(const Operands& o)> run;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add_case = [&](std::string name, std::function<Run(const Operands&)> run) {
    all.push_back({std::move(name), std::move(run)});
  };
  for (const Statistics statistics : all_statistics()) {
    add_case(fmt::format("group_norm, {}", to_string(statistics)), [statistics](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
      return {in, group_norm(in[0], 4, in[1], in[2], {.statistics = statistics})};
    });
  }
  add_case("group_norm, weight alone", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2)};
    return {in, group_norm(in[0], 2, in[1])};
  });
  add_case("layer_norm", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2, {5, 7}), o.parameter(3, {5, 7})};
    return {in, layer_norm(in[0], {5, 7}, in[1], in[2])};
  });
  add_case("layer_norm_2d", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
    return {in, layer_norm_2d(in[0], in[1], in[2])};
  });
  add_case("rms_norm_2d", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2)};
    return {in, rms_norm_2d(in[0], in[1])};
  });
  add_case("simple_norm_2d", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2)};
    return {in, simple_norm_2d(in[0], in[1])};
  });
  for (const Activation activation : {Activation::relu, Activation::gelu}) {
    // 35 elements in a map: relu's bits come from an op of their own.
    add_case(fmt::format("instance_norm, residual, {}", to_string(activation)), [activation](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3), o.x(4)};
      return {in, instance_norm(in[0], in[1], in[2], {}, {.activation = activation, .residual = in[3]})};
    });
    add_case(fmt::format("group_norm, 8 columns, residual, {}", to_string(activation)),
             [activation](const Operands& o) -> Run {
               const Tensors in{o.x(1, {3, 8, 5, 8}), o.parameter(2), o.parameter(3), o.x(4, {3, 8, 5, 8})};
               return {in, group_norm(in[0], 2, in[1], in[2], {}, {.activation = activation, .residual = in[3]})};
             });
  }
  for (const bool training : {true, false}) {
    const std::string_view mode = training ? "training" : "evaluation";
    add_case(fmt::format("batch_norm, {}", mode), [training](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
      const Tensor mean = o.running(4);
      const Tensor var = o.positive(5);
      return {in, batch_norm(in[0], mean, var, in[1], in[2], {.training = training}), {mean, var}};
    });
    add_case(fmt::format("ghost_batch_norm, {}", mode), [training](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
      const Tensor mean = o.running(4);
      const Tensor var = o.positive(5);
      return {in, ghost_batch_norm(in[0], 2, mean, var, in[1], in[2], {.training = training}), {mean, var}};
    });
    add_case(fmt::format("batch_renorm, {}", mode), [training](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
      const Tensor mean = o.running(4);
      const Tensor var = o.positive(5);
      return {in, batch_renorm(in[0], mean, var, in[1], in[2], {.batch_norm = {.training = training}}), {mean, var}};
    });
    add_case(fmt::format("instance_norm, tracked, {}", mode), [training](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
      const Tensor mean = o.running(4);
      const Tensor var = o.positive(5);
      return {in, instance_norm(in[0], mean, var, in[1], in[2], {.training = training}, {}), {mean, var}};
    });
    add_case(fmt::format("evo_norm_b0, {}", mode), [training](const Operands& o) -> Run {
      const Tensors in{o.x(1), o.parameter(2), o.parameter(3), o.parameter(4)};
      const Tensor var = o.positive(5);
      return {in,
              evo_norm_b0(in[0], var, in[1], in[2], in[3], {.training = training, .activation = Activation::relu}),
              {var}};
    });
  }
  add_case("evo_norm_s0", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2), o.parameter(3), o.parameter(4)};
    return {in, evo_norm_s0(in[0], 4, in[1], in[2], in[3])};
  });
  add_case("filter_response_norm", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2), o.parameter(3), o.parameter(4)};
    return {in, filter_response_norm(in[0], in[1], in[2], in[3], {.activation = Activation::gelu})};
  });
  add_case("global_response_norm", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2), o.parameter(3)};
    return {in, global_response_norm(in[0], in[1], in[2])};
  });
  add_case("local_response_norm", [](const Operands& o) -> Run {
    const Tensors in{o.x(1)};
    return {in, local_response_norm(in[0], 5, {.alpha = 0.5})};
  });
  add_case("dynamic_tanh", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2, {1}), o.parameter(3), o.parameter(4)};
    return {in, dynamic_tanh(in[0], in[1], in[2], in[3])};
  });
  add_case("standardize_weight", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.parameter(2, {3})};
    return {in, standardize_weight(in[0], in[1], {.gamma = 1.5})};
  });
  add_case("normalize_backward", [](const Operands& o) -> Run {
    const Tensors in{o.x(1), o.x(2), o.parameter(3)};
    return {in, normalize_backward(in[0], in[1], {.reduce = {1, 2, 3}, .affine = {1}, .groups = 2}, in[2])[0]};
  });
  add_case("empty, batch_norm with a residual", [](const Operands& o) -> Run {
    const Tensors in{o.x(1, {0, 8, 5, 7}), o.parameter(2), o.parameter(3), o.x(4, {0, 8, 5, 7})};
    NormStatistics statistics;
    const NormSpec spec{.reduce = {0, 2, 3}, .affine = {1}};
    const Tensor y = norm_act(in[0], spec, in[1], in[2], {Activation::relu, in[3]}, &statistics);
    return {in, y, {statistics.mean, statistics.var}};
  });
  add_case("empty, evo_norm_s0", [](const Operands& o) -> Run {
    const Tensors in{o.x(1, {0, 8, 5, 7}), o.parameter(2), o.parameter(3), o.parameter(4)};
    return {in, evo_norm_s0(in[0], 4, in[1], in[2], in[3])};
  });
  return all;
}

/// y, state, gradients by the kernels, and gradients of those.
Tensors all_results(const Case& norm, const Operands& operands) {
  const Run run = norm.run(operands);
  Tensors results{run.y};
  results.insert(results.end(), run.state.begin(), run.state.end());
  const Tensor dy = operands.there(copy_of(random_tensor(run.y.sizes(), 9), operands.format, run.y.dtype()));
  const Tensors first = grad({run.y}, run.inputs, {dy}, {.retain_graph = true});
  results.insert(results.end(), first.begin(), first.end());
  const Tensors with_graph = grad({run.y}, run.inputs, {dy}, {.create_graph = true});
  results.insert(results.end(), with_graph.begin(), with_graph.end());
  Tensor dx = with_graph[0];
  if (dx.requires_grad()) {
    const Tensor direction =
        to_device(copy_of(random_tensor(dx.sizes(), 10), operands.format, dx.dtype()), dx.device());
    const Tensors second = grad({dx}, run.inputs, {direction});
    results.insert(results.end(), second.begin(), second.end());
  }
  return results;
}

/// The largest difference as a share of the largest number of both; infinite where one has a NaN that the other has
/// not.
double relative_difference(const Tensor& a, const Tensor& b) {
  double largest = 1e-3;
  for (const Tensor& x : {a, b}) {
    for (const double value : x.to_vector<double>()) {
      largest = std::max(largest, std::abs(value));
    }
  }
  return max_difference(a, b) / largest;
}

/// Sums of 35 to 420 elements in another order, and gradients of gradients, which lose a digit or two. 16 bits: a unit
/// or two of the last place.
double tolerance(DType dtype) {
  return dtype == DType::float64 ? 1e-11 : dtype == DType::float32 ? 2e-4 : 0.03;
}

void check_results(const Tensors& results, const Tensors& expected, Device device, DType dtype) {
  REQUIRE(results.size() == expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    CAPTURE(i);
    REQUIRE(results[i].defined() == expected[i].defined());
    if (results[i].defined()) {
      CHECK(results[i].device() == device);
      CHECK(results[i].strides() == expected[i].strides());
      CHECK(relative_difference(results[i], expected[i]) <= tolerance(dtype));
    }
  }
}

}  // namespace

TEST_CASE("cuda norms: every function has the numbers of the CPU, forward, backward and twice") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Case& norm : cases()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(norm.name);
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(format));
        const Tensors expected = all_results(norm, {kCpu, dtype, format});
        for (const Device device : cuda_devices()) {
          check_results(all_results(norm, {device, dtype, format}), expected, device, dtype);
          if (dtype != DType::float64) {  // which has no kernels of vectors
            check_results(all_results(norm, {device, dtype, format, /* off= */ true}), expected, device, dtype);
          }
        }
      }
    }
  }
}

TEST_CASE("cuda norms: statistics") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Centring centring : {Centring::mean, Centring::none, Centring::deviation}) {
    const Tensor x = random_tensor({3, 8, 5, 7}, 1, DType::float32);
    const NormSpec spec{.reduce = {1, 2, 3}, .groups = 2, .centring = centring};
    const NormStatistics expected = norm_statistics(x, spec);
    for (const Device device : cuda_devices()) {
      const NormStatistics result = norm_statistics(to_device(x, device), spec);
      CHECK(result.mean.device() == device);
      CHECK(max_difference(result.mean, expected.mean) <= 1e-6);
      CHECK(max_difference(result.var, expected.var) <= 1e-6);
    }
  }
}

TEST_CASE("normalize_backward: dy lies on the device of x") {
  const Tensor x = to_device(random_tensor({2, 3}, 1), kCpu);
  CHECK_THROWS_WITH_AS(normalize_backward(to_device(x, kCudaEmulated), x, {.reduce = {1}}),
                       "normalize_backward: dy: expected device cpu, got cuda-emulated:0", Error);
}
