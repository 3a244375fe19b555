#include "cuda_results.h"
#include "map_norm_cases.h"
#include "norm_table.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"

#include <functional>
#include <limits>
#include <utility>

// The PTX that nvcc made, on the virtual GPU, beside the same kernels compiled for the host, on cuda-emulated. Where
// each step is exactly rounded in both, they have the same bits. That needs sums in the same order, so the virtual GPU
// is the one that gives kernels the blocks that cuda-emulated gives them: NORMA_VIRTUAL_GPU=emulated (docs/cuda.md).

using namespace norma;
using namespace norma::test;

namespace {

bool has_the_plans_of_cuda_emulated() {
  for (const auto& [name, text] : cuda_facts()) {
    if (name == "cuda:0" && text.starts_with("GPU with the plans of cuda-emulated (virtual),")) {
      return true;
    }
  }
  std::printf("skipped: no virtual GPU with the plans of cuda-emulated\n");
  return false;
}

/// Where exp(), erfc(), log(), tanh() and pow() take part, which are each library's own: a unit or two of the last
/// place in each, and formulas that make a little more of it.
constexpr double kOfLibraries = 4;

/// Puts numbers on the device of a run, in its dtype.
using Put = std::function<Tensor(const Tensor& numbers)>;
using Results = std::function<Tensors(const Put& put)>;

/// f(put) on both devices. `units`: how far results may be apart, in the last place of the largest number; 0: they have
/// the same bits.
void compare(const std::string& name, const std::vector<DType>& dtypes, MemoryFormat format, double units,
             const Results& f) {
  const DefaultDeviceGuard guard(kCpu);
  for (const DType dtype : dtypes) {
    const auto on = [&](Device device) {
      return on_cpu(f([&](const Tensor& numbers) {
        const MemoryFormat order = numbers.rank() == 4 ? format : MemoryFormat::contiguous;
        return to_device(copy_of(numbers, order, dtype), device).detach();
      }));
    };
    const Tensors ptx = on(kCuda);
    const Tensors emulated = on(kCudaEmulated);
    REQUIRE(ptx.size() == emulated.size());
    const double unit = dtype == DType::float64    ? 0x1p-52
                        : dtype == DType::float32  ? 0x1p-23
                        : dtype == DType::bfloat16 ? 0x1p-7
                                                   : 0x1p-10;
    for (size_t i = 0; i < ptx.size(); ++i) {
      const double apart = relative_difference_or_nan(ptx[i], emulated[i]) / unit;
      CHECK_MESSAGE(apart <= units, name, " ", to_string(dtype), " ", to_string(format), ", result ", i, ": ", apart);
    }
  }
}

const std::vector<DType> kDTypes = {DType::float32, DType::bfloat16, DType::float64};
constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

/// y and the gradients of all inputs, of f(inputs).
Tensors with_gradients(const std::function<Tensor(const Tensors&)>& f, Tensors inputs, const Put& put) {
  for (Tensor& input : inputs) {
    input = input.set_requires_grad();
  }
  const Tensor y = f(inputs);
  Tensors all{y};
  for (const Tensor& gradient : grad({y}, inputs, {put(random_tensor(y.sizes(), 99))})) {
    all.push_back(gradient);
  }
  return all;
}

}  // namespace

TEST_CASE("ptx: norms") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  struct Then {
    Activation activation;
    bool with_residual;
    double units;
  };
  constexpr Then kThen[] = {
      {Activation::identity, false, 0}, {Activation::relu, true, 0}, {Activation::gelu, false, kOfLibraries}};
  for (const Sizes& sizes : {Sizes{3, 8, 5, 7}, Sizes{2, 32, 4, 6}}) {
    for (const SpecCase& c : image_norms(sizes)) {
      for (const Then& then : kThen) {
        const NormOperands of = operands_of(c, DType::float64, then.with_residual);
        for (const MemoryFormat format : kFormats) {
          compare(c.name + " " + to_string(sizes), kDTypes, format, then.units, [&](const Put& put) {
            const Tensor x = put(of.x);
            const auto weights = [&](const Tensor& numbers) {
              const DType dtype = compute_dtype(x.dtype());
              return to_device(copy_of(numbers, MemoryFormat::contiguous, dtype), x.device()).detach();
            };
            const NormOperands there{x, weights(of.weight), weights(of.bias),
                                     then.with_residual ? put(of.residual) : Tensor(), put(of.dy)};
            Tensors defined;
            for (const Tensor& result : norm_results(c.spec, there, then.activation)) {
              if (result.defined()) {
                defined.push_back(result);
              }
            }
            return defined;
          });
        }
      }
    }
  }
}

TEST_CASE("ptx: functions of each element") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  using Function = std::pair<const char*, Tensor (*)(const Tensor&)>;
  const Tensor numbers = random_tensor({1037}, 1);
  const Tensor others = random_tensor({1037}, 2);
  const Tensor positive = add(abs(numbers), 0.01);
  for (const auto& [name, f] : {Function{"neg", neg}, {"sqrt", sqrt}, {"rsqrt", rsqrt}, {"abs", abs}, {"relu", relu}}) {
    compare(name, kDTypes, MemoryFormat::contiguous, 0, [f = f, &positive](const Put& put) {
      return with_gradients([f](const Tensors& in) { return f(in[0]); }, {put(positive)}, put);
    });
  }
  for (const auto& [name, f] :
       {Function{"exp", exp}, {"log", log}, {"tanh", tanh}, {"sigmoid", sigmoid}, {"erf", erf}, {"silu", silu}}) {
    compare(name, kDTypes, MemoryFormat::contiguous, kOfLibraries, [f = f, &positive](const Put& put) {
      return with_gradients([f](const Tensors& in) { return f(in[0]); }, {put(positive)}, put);
    });
  }
  using Two = std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>;
  for (const auto& [name, f] : {Two{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}, {"maximum", maximum}}) {
    compare(name, kDTypes, MemoryFormat::contiguous, 0, [&, f = f](const Put& put) {
      return with_gradients([f](const Tensors& in) { return f(in[0], in[1]); }, {put(numbers), put(others)}, put);
    });
  }
  compare("dropout", kDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
    Generator generator(5);
    return Tensors{dropout(put(numbers), 0.3, /* training= */ true, generator)};
  });
}

TEST_CASE("ptx: reductions and losses") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  for (const Sizes& sizes : {Sizes{7, 33}, Sizes{3, 5000}, Sizes{300, 12}}) {
    for (const int64_t axis : {0, 1}) {
      const Tensor numbers = random_tensor(sizes, 3);
      compare("reductions of " + to_string(sizes), kDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
        const Tensor x = put(numbers);
        return Tensors{sum(x, {axis}), mean(x, {axis}), var(x, {axis}),
                       max(x, {axis}), prod(x, {axis}), argmax(x, axis)};
      });
      compare("softmax of " + to_string(sizes), {DType::float32, DType::float64}, MemoryFormat::contiguous,
              kOfLibraries, [&](const Put& put) {
                return with_gradients([&](const Tensors& in) { return softmax(in[0], axis); }, {put(numbers)}, put);
              });
      compare("log_softmax of " + to_string(sizes), {DType::float32, DType::float64}, MemoryFormat::contiguous,
              kOfLibraries, [&](const Put& put) {
                return with_gradients([&](const Tensors& in) { return log_softmax(in[0], axis); }, {put(numbers)}, put);
              });
    }
  }
}

TEST_CASE("ptx: pooling") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  const std::function<Tensor(const Tensors&)> kPools[] = {
      [](const Tensors& in) { return max_pool2d(in[0], {.kernel = 3, .stride = 2, .padding = 1}); },
      [](const Tensors& in) {
        return avg_pool2d(in[0], {.kernel = {3, 4}, .stride = 2, .padding = {1, 2}});
      },
      [](const Tensors& in) { return adaptive_avg_pool2d(in[0], 1); }};
  for (const auto& pool : kPools) {
    for (const MemoryFormat format : kFormats) {
      compare("pooling", kDTypes, format, 0, [&](const Put& put) {
        return with_gradients(pool, {put(random_tensor({2, 16, 9, 14}, 4))}, put);
      });
    }
  }
}

TEST_CASE("ptx: optimizers") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  const auto operands = [](const Put& put, int64_t count) {
    Tensors all;
    for (uint64_t i = 0; i < 4; ++i) {
      const Tensor numbers = random_tensor({count}, 1 + i);
      all.push_back(put(i == 3 ? mul(numbers, numbers) : numbers));  // square averages are not negative
    }
    return all;
  };
  const std::vector<DType> both = {DType::float32, DType::float64};
  for (const int64_t count : {5, 4097, 9001}) {
    compare("sgd", both, MemoryFormat::contiguous, 0, [&](const Put& put) {
      Tensors of = operands(put, count);
      sgd_step({{of[0], of[1], of[2], {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .share = 0.8, .own = 0.3}}});
      return of;
    });
    compare("adamw", both, MemoryFormat::contiguous, 0, [&](const Put& put) {
      Tensors of = operands(put, count);
      adamw_step({{of[0],
                   of[1],
                   of[2],
                   of[3],
                   {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .shrink = 0.999, .step_size = 0.02, .scale = 1.25}}});
      return of;
    });
    compare("lamb", both, MemoryFormat::contiguous, 0, [&](const Put& put) {
      Tensors of = operands(put, count);
      lamb_step({{of[0], of[1], of[2], of[3], {}}}, Tensor());
      return of;
    });
    compare("clipping", kDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
      Tensors of = operands(put, count);
      const Tensor sums = sums_of_squares(of, of[0].device());
      const Tensor norm_and_factor = clipping_of(sums, 1.0);
      cut_off_in_place("cut off", {of[1]}, 0.6);
      return Tensors{sums, norm_and_factor, of[1]};
    });
  }
}

TEST_CASE("ptx: depthwise convolutions") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  for (const int64_t kernel : {3, 5, 7}) {
    for (const int64_t stride : {1, 2}) {
      for (const MemoryFormat format : kFormats) {
        compare("depthwise", kDTypes, format, 0, [&](const Put& put) {
          const auto f = [&](const Tensors& in) {
            return conv2d(in[0], in[1], in[2], {.stride = stride, .padding = kernel / 2, .groups = 16});
          };
          return with_gradients(f,
                                {put(random_tensor({2, 16, 9, 13}, 1)), put(random_tensor({16, 1, kernel, kernel}, 2)),
                                 put(random_tensor({16}, 3))},
                                put);
        });
      }
    }
  }
}

TEST_CASE("ptx: norms with a formula of their own for each map") {
  if (!has_the_plans_of_cuda_emulated()) {
    return;
  }
  for (const MapNormCase& norm : map_norm_cases()) {
    for (const MemoryFormat format : kFormats) {
      const bool exact = norm.name.starts_with("evo_norm_b0") || norm.name.starts_with("filter_response_norm") ||
                         norm.name.starts_with("global_response_norm");
      compare(norm.name, kDTypes, format, exact ? 0 : kOfLibraries, [&](const Put& put) {
        const Tensor x = put(random_tensor({2, 8, 6, 5}, 1));
        Tensors inputs{x};
        for (const Tensor& parameter : map_norm_parameters(norm, 8)) {
          inputs.push_back(
              to_device(copy_of(parameter, MemoryFormat::contiguous, compute_dtype(x.dtype())), x.device()).detach());
        }
        return with_gradients([&](const Tensors& in) { return norm.run(in, {}); }, inputs, put);
      });
    }
  }
}
