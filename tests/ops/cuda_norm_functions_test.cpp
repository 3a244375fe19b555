#include "core/copy.h"
#include "core/tape.h"
#include "ops/cuda_results.h"
#include "ops/map_norm_cases.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

// Every norm function on CUDA's kernels: the numbers are those of the CPU, to what another order of sums may change.
// The memory of the emulated device stops a host that looks into it. The default device stays the CPU, so that a tensor
// that is made without the device of its input is found, too.

using namespace norma;
using namespace norma::test;

namespace {

/// What the functions take: x (3, 8, 5, 7) and another tensor like it, parameters of one number per channel, running
/// statistics.
struct Arguments {
  Tensor x, other, a, b, c, mean, var;
  Tensor of_pixels_a, of_pixels_b;  ///< (5, 7)
  Tensor alpha;                     ///< (1)
  Tensor gain;                      ///< (3)
};

struct Function {
  std::string name;
  std::function<Tensor(const Arguments& in)> run;
  Sizes sizes = {3, 8, 5, 7};
};

std::vector<Function> functions() {
  std::vector<Function> all = {
      {"group_norm, weight alone", [](const Arguments& in) { return group_norm(in.x, 2, in.a); }},
      {"layer_norm",
       [](const Arguments& in) {
         return layer_norm(in.x, {5, 7}, in.of_pixels_a, in.of_pixels_b);
       }},
      {"layer_norm_2d", [](const Arguments& in) { return layer_norm_2d(in.x, in.a, in.b); }},
      {"rms_norm_2d", [](const Arguments& in) { return rms_norm_2d(in.x, in.a); }},
      {"simple_norm_2d", [](const Arguments& in) { return simple_norm_2d(in.x, in.a); }},
      {"evo_norm_s0", [](const Arguments& in) { return evo_norm_s0(in.x, 4, in.a, in.b, in.c); }},
      {"filter_response_norm",
       [](const Arguments& in) {
         return filter_response_norm(in.x, in.a, in.b, in.c, {.activation = Activation::gelu});
       }},
      {"global_response_norm", [](const Arguments& in) { return global_response_norm(in.x, in.a, in.b); }},
      {"local_response_norm", [](const Arguments& in) { return local_response_norm(in.x, 5, {.alpha = 0.5}); }},
      {"dynamic_tanh", [](const Arguments& in) { return dynamic_tanh(in.x, in.alpha, in.a, in.b); }},
      {"dynamic_erf", [](const Arguments& in) { return dynamic_erf(in.x, in.alpha, in.alpha, in.a, in.b); }},
      {"seed_norm", [](const Arguments& in) { return seed_norm(in.x, in.a, in.b, in.a); }},
      {"standardize_weight", [](const Arguments& in) { return standardize_weight(in.x, in.gain, {.gamma = 1.5}); }},
      {"normalize_backward",
       [](const Arguments& in) {
         const NormSpec spec{.reduce = {1, 2, 3}, .affine = {1}, .groups = 2};
         return normalize_backward(in.x, in.other, spec, in.a)[0];
       }},
      {"empty, batch_norm with a residual",
       [](const Arguments& in) {
         return norm_act(in.x, {.reduce = {0, 2, 3}, .affine = {1}}, in.a, in.b, {Activation::relu, in.other});
       },
       {0, 8, 5, 7}},
      {"empty, evo_norm_s0", [](const Arguments& in) { return evo_norm_s0(in.x, 4, in.a, in.b, in.c); }, {0, 8, 5, 7}}};
  for (const Statistics statistics : all_statistics()) {
    all.push_back({fmt::format("group_norm, {}", to_string(statistics)),
                   [=](const Arguments& in) { return group_norm(in.x, 4, in.a, in.b, {.statistics = statistics}); }});
  }
  for (const Activation activation : {Activation::relu, Activation::gelu}) {
    // 35 elements in a map: relu's bits come from an op of their own.
    all.push_back({fmt::format("instance_norm, residual, {}", to_string(activation)), [=](const Arguments& in) {
                     return instance_norm(in.x, in.a, in.b, {}, {.activation = activation, .residual = in.other});
                   }});
    all.push_back({fmt::format("group_norm, 8 columns, residual, {}", to_string(activation)),
                   [=](const Arguments& in) {
                     return group_norm(in.x, 2, in.a, in.b, {}, {.activation = activation, .residual = in.other});
                   },
                   {3, 8, 5, 8}});
  }
  for (const bool training : {true, false}) {
    const auto add_case = [&](const char* name, std::function<Tensor(const Arguments&)> run) {
      all.push_back({fmt::format("{}, {}", name, training ? "training" : "evaluation"), std::move(run)});
    };
    add_case("batch_norm", [=](const Arguments& in) {
      return batch_norm(in.x, in.mean, in.var, in.a, in.b, {.training = training});
    });
    add_case("ghost_batch_norm", [=](const Arguments& in) {
      return ghost_batch_norm(in.x, 2, in.mean, in.var, in.a, in.b, {.training = training});
    });
    add_case("batch_renorm", [=](const Arguments& in) {
      return batch_renorm(in.x, in.mean, in.var, in.a, in.b, {.batch_norm = {.training = training}});
    });
    add_case("instance_norm, tracked", [=](const Arguments& in) {
      return instance_norm(in.x, in.mean, in.var, in.a, in.b, {.training = training}, {});
    });
    add_case("evo_norm_b0", [=](const Arguments& in) {
      return evo_norm_b0(in.x, in.var, in.a, in.b, in.c, {.training = training, .activation = Activation::relu});
    });
  }
  return all;
}

/// y, the running statistics, gradients by the kernels, those with create_graph, and gradients of the latter. `off`:
/// the operands begin between two vectors.
Tensors all_results(const Function& function, Device device, DType dtype, MemoryFormat format, bool off = false) {
  const DType of_parameters = dtype == DType::float64 ? DType::float64 : DType::float32;
  const auto there = [&](const Tensor& values, DType as) {
    const Tensor result =
        to_device(copy_of(values, values.rank() == 4 ? format : MemoryFormat::contiguous, as), device).detach();
    return off ? unaligned(result) : result;
  };
  Tensors inputs;
  const auto leaf = [&](const Sizes& sizes, uint64_t seed, DType as) {
    inputs.push_back(there(random_tensor(sizes, seed), as).set_requires_grad());
    return inputs.back();
  };
  const Arguments in{.x = leaf(function.sizes, 1, dtype),
                     .other = leaf(function.sizes, 4, dtype),
                     .a = leaf({8}, 2, of_parameters),
                     .b = leaf({8}, 3, of_parameters),
                     .c = leaf({8}, 5, of_parameters),
                     .mean = there(random_tensor({8}, 6), of_parameters),
                     .var = there(add(abs(random_tensor({8}, 7)), 0.1), of_parameters),
                     .of_pixels_a = leaf({5, 7}, 8, of_parameters),
                     .of_pixels_b = leaf({5, 7}, 9, of_parameters),
                     .alpha = leaf({1}, 2, of_parameters),
                     .gain = leaf({3}, 2, of_parameters)};
  const Tensor y = function.run(in);
  const Tensor dy = there(random_tensor(y.sizes(), 9), y.dtype());
  Tensors results{y, in.mean, in.var};
  const auto append = [&](const Tensors& more) { results.insert(results.end(), more.begin(), more.end()); };
  append(grad({y}, inputs, {dy}, {.retain_graph = true}));
  const Tensors with_graph = grad({y}, inputs, {dy}, {.create_graph = true});
  append(with_graph);
  if (with_graph[0].requires_grad()) {
    append(grad({with_graph[0]}, inputs, {there(random_tensor(y.sizes(), 10), y.dtype())}));
  }
  return results;
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

/// Rounded to a dtype, and then in it or in float64.
Tensor operand(const Tensor& values, DType dtype, bool in_float64, MemoryFormat format, Device device) {
  const DType as = in_float64 ? DType::float64 : dtype;
  return to_device(copy_of(rounded(values, dtype), format, as), device).detach();
}

/// y, dx and the gradients of the parameters, from numbers of `dtype`, in the same or in float64.
Tensors map_results(const MapNormCase& norm, const Sizes& sizes, Activation activation, MemoryFormat format,
                    Device device, DType dtype, bool in_float64 = false, double scale = 1) {
  Tensors inputs{operand(mul(random_tensor(sizes, 1), scale), dtype, in_float64, format, device).set_requires_grad()};
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

void check_map_norm(const MapNormCase& norm, const Sizes& sizes, Activation activation, DType dtype, double scale = 1) {
  const DefaultDeviceGuard guard(kCpu);
  // y and dx are rounded to 16 bits once; float32 adds up no more than some thousand numbers.
  const double tolerance = dtype == DType::float64    ? 1e-11
                           : dtype == DType::float32  ? 2e-5
                           : dtype == DType::bfloat16 ? 0x1.1p-8
                                                      : 0x1.1p-11;
  const Tensors expected = on_cpu(
      map_results(norm, sizes, activation, MemoryFormat::contiguous, kCpu, dtype, /* in_float64= */ true, scale));
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const Device device : cuda_devices()) {
      const Tensors got = on_cpu(map_results(norm, sizes, activation, format, device, dtype, false, scale));
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

TEST_CASE("cuda norms: every function has the numbers of the CPU, forward, backward and twice") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Function& norm : functions()) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(norm.name);
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(format));
        const Tensors expected = all_results(norm, kCpu, dtype, format);
        for (const Device device : cuda_devices()) {
          check_results(all_results(norm, device, dtype, format), expected, device, dtype);
          if (dtype != DType::float64) {  // which has no kernels of vectors
            check_results(all_results(norm, device, dtype, format, /* off= */ true), expected, device, dtype);
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

TEST_CASE("cuda map norms: every function, dtype and memory format") {
  // Maps of one pixel, of whole vectors and of others; fewer and more channels than a warp; several images.
  for (const Sizes& sizes : {Sizes{3, 5, 3, 7}, Sizes{2, 40, 4, 4}, Sizes{1, 33, 6, 5}, Sizes{4, 1, 5, 4}}) {
    for (const MapNormCase& norm : map_norm_cases()) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::float64}) {
        for (const Activation activation : {Activation::identity, Activation::relu}) {
          check_map_norm(norm, sizes, activation, dtype);
        }
      }
    }
  }
}

TEST_CASE("cuda map norms: maps of many pixels, which several blocks or all threads of one share, and many maps") {
  for (const Sizes& sizes : {Sizes{1, 5, 97, 86}, Sizes{2, 3, 19, 37}, Sizes{1, 2, 128, 80}, Sizes{3, 2100, 1, 2}}) {
    for (const MapNormCase& norm : map_norm_cases()) {
      check_map_norm(norm, sizes, Activation::identity, DType::float32);
    }
  }
}

TEST_CASE("cuda map norms: local response norm where squares leave float32") {
  const auto norms = map_norm_cases();
  for (const double scale : {1e-25, 1e22}) {
    for (const size_t i : {norms.size() - 2, norms.size() - 1}) {
      check_map_norm(norms[i], {2, 7, 3, 4}, Activation::relu, DType::float32, scale);
    }
  }
}

TEST_CASE("cuda map norms: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  for (const MapNormCase& norm : map_norm_cases()) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (const Sizes& sizes : {Sizes{2, 40, 6, 5}, Sizes{1, 3, 19, 37}}) {
        check_any_order(norm.name, [&](Device device) {
          return map_results(norm, sizes, Activation::relu, format, device, DType::float32);
        });
      }
    }
  }
}
