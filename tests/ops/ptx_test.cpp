#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/map_norm_cases.h"
#include "ops/norm_table.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/ptx_results.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"

#include <functional>
#include <utility>

// Kernels that compute, from the PTX that nvcc made and compiled for the host: see ptx_results.h.

using namespace norma;
using namespace norma::test;

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
        for (const MemoryFormat format : kPtxFormats) {
          compare(c.name + " " + to_string(sizes), kPtxDTypes, format, then.units, [&](const Put& put) {
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
    compare(name, kPtxDTypes, MemoryFormat::contiguous, 0, [f = f, &positive](const Put& put) {
      return with_gradients([f](const Tensors& in) { return f(in[0]); }, {put(positive)}, put);
    });
  }
  for (const auto& [name, f] :
       {Function{"exp", exp}, {"log", log}, {"tanh", tanh}, {"sigmoid", sigmoid}, {"erf", erf}, {"silu", silu}}) {
    compare(name, kPtxDTypes, MemoryFormat::contiguous, kOfLibraries, [f = f, &positive](const Put& put) {
      return with_gradients([f](const Tensors& in) { return f(in[0]); }, {put(positive)}, put);
    });
  }
  using Two = std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>;
  for (const auto& [name, f] : {Two{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}, {"maximum", maximum}}) {
    compare(name, kPtxDTypes, MemoryFormat::contiguous, 0, [&, f = f](const Put& put) {
      return with_gradients([f](const Tensors& in) { return f(in[0], in[1]); }, {put(numbers), put(others)}, put);
    });
  }
  compare("dropout", kPtxDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
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
      compare("reductions of " + to_string(sizes), kPtxDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
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
    for (const MemoryFormat format : kPtxFormats) {
      compare("pooling", kPtxDTypes, format, 0, [&](const Put& put) {
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
      sgd_step({{of[0],
                 of[1],
                 of[2],
                 Tensor(),
                 {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .share = 0.8, .own = 0.3}}});
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
    compare("clipping", kPtxDTypes, MemoryFormat::contiguous, 0, [&](const Put& put) {
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
      for (const MemoryFormat format : kPtxFormats) {
        compare("depthwise", kPtxDTypes, format, 0, [&](const Put& put) {
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
    for (const MemoryFormat format : kPtxFormats) {
      const bool exact = norm.name.starts_with("evo_norm_b0") || norm.name.starts_with("filter_response_norm") ||
                         norm.name.starts_with("global_response_norm");
      // The gradient of shift is one sum over all elements, most of which cancels.
      const double units = norm.name.starts_with("dynamic_erf") ? 8 * kOfLibraries : kOfLibraries;
      compare(norm.name, kPtxDTypes, format, exact ? 0 : units, [&](const Put& put) {
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
