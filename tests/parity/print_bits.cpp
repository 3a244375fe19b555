#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/norm/factory.h"
#include "nn/optim/optimizers.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

// print_bits: a line for each of our kernels, in each format and each dtype that is computed in float32, with a hash of
// the bits of its results and gradients. Two builds, or one build under two values of NORMA_SIMD, print the same where
// they compute the same.

using namespace norma;

namespace {

/// FNV-1a of the bytes of the elements, in row-major order.
uint64_t hash_of(const Tensor& x, uint64_t hash) {
  const Tensor dense = copy_of(x.detach(), MemoryFormat::contiguous);
  const auto* bytes = static_cast<const unsigned char*>(dense.raw_data());
  for (int64_t i = 0; i < dense.numel() * static_cast<int64_t>(size_of(dense.dtype())); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001B3U;
  }
  return hash;
}

using Function = std::function<Tensor(const Tensor& x)>;

/// Also the gradients of `parameters`, where there are any.
void print(const std::string& name, const Function& f, const Tensor& x, const Tensors& parameters = {}) {
  uint64_t hash = 0xCBF29CE484222325U;
  const Tensor y = f(x);
  hash = hash_of(y, hash);
  if (y.requires_grad()) {
    Generator generator(7);
    y.backward(to(randn(y.sizes(), {}, generator), y.dtype()));
    hash = hash_of(x.grad(), hash);
    for (const Tensor& parameter : parameters) {
      hash = parameter.grad().defined() ? hash_of(parameter.grad(), hash) : hash;
    }
  }
  fmt::print("{} {:016x}\n", name, hash);
}

/// Calls f(label, input that wants a gradient) for the dtypes that are computed in float32 and both formats.
template <class F>
void for_each_input(const Sizes& sizes, F&& f) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      Generator generator(3);
      Tensor x = to(to(randn(sizes, {}, generator), dtype), format);
      x.set_requires_grad();
      f(fmt::format("{} {} {}", to_string(sizes), to_string(dtype), to_string(format)), x);
    }
  }
}

const Sizes kImages[] = {{3, 20, 7, 9}, {2, 64, 14, 14}, {1, 8, 65, 33}, {2, 160, 1, 3}};

void print_norms() {
  for (const std::string& name : nn::norm_names()) {
    for (const Sizes& sizes : kImages) {
      for_each_input(sizes, [&](const std::string& label, const Tensor& x) {
        const bool grouped = nn::norm_definition(name).takes_groups;
        const auto norm = nn::make_norm(grouped ? name + ":4" : name, sizes[1]);
        Generator generator(5);
        for (const Tensor& parameter : norm->parameters()) {
          copy_into(randn(parameter.sizes(), {}, generator), parameter.detach());
        }
        print(
            fmt::format("{} {}", name, label), [&](const Tensor& input) { return (*norm)(input); }, x,
            norm->parameters());
      });
    }
  }
}

void print_functions() {
  const std::pair<std::string, Function> functions[] = {
      {"exp", [](const Tensor& x) { return exp(x); }},
      {"log", [](const Tensor& x) { return log(mul(x, x)); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"erf", [](const Tensor& x) { return erf(x); }},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu(tanh)", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }},
      {"rsqrt", [](const Tensor& x) { return rsqrt(mul(x, x)); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 3); }},
      {"sum",
       [](const Tensor& x) {
         return sum(x, {0, 2});
       }},
      {"var",
       [](const Tensor& x) {
         return var(x, {1, 3});
       }},
      {"max",
       [](const Tensor& x) {
         return max(x, {2, 3});
       }},
      {"avg_pool2d",
       [](const Tensor& x) {
         return avg_pool2d(x, {.kernel = {1, 3}, .stride = {1, 2}});
       }},
      {"max_pool2d",
       [](const Tensor& x) {
         return max_pool2d(x, {.kernel = {1, 3}, .stride = {1, 2}});
       }},
      {"adaptive_avg_pool2d", [](const Tensor& x) { return adaptive_avg_pool2d(x, 1); }}};
  for (const auto& [name, f] : functions) {
    for (const Sizes& sizes : kImages) {
      for_each_input(sizes, [&, &name = name, &f = f](const std::string& label, const Tensor& x) {
        print(fmt::format("{} {}", name, label), f, x);
      });
    }
  }
}

void print_depthwise() {
  for_each_input({2, 40, 9, 11}, [](const std::string& label, const Tensor& x) {
    Generator generator(5);
    Tensor weight = to(randn({40, 1, 7, 7}, {}, generator), x.dtype());
    weight.set_requires_grad();
    print(fmt::format("depthwise {}", label),
          [&](const Tensor& input) { return conv2d(input, weight, {}, {.padding = 3, .groups = 40}); }, x, {weight});
  });
}

void print_steps() {
  Generator generator(5);
  for (const std::string name : {"sgd", "adamw"}) {
    Tensor parameter = randn({1003}, {}, generator);
    parameter.set_requires_grad();
    const std::vector<nn::ParameterGroup> groups{{.parameters = {{"p", parameter}}, .weight_decay = 0.05}};
    const auto take = [&](nn::Optimizer& optimizer) {
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        sum(mul(parameter, mul(parameter, parameter))).backward();
        optimizer.step();
      }
    };
    if (name == "sgd") {
      nn::Sgd optimizer(groups, {.lr = 0.01, .momentum = 0.9});
      take(optimizer);
    } else {
      nn::AdamW optimizer(groups, {.lr = 0.01});
      take(optimizer);
    }
    fmt::print("{} {:016x}\n", name, hash_of(parameter, 0));
  }
}

}  // namespace

int main() {
  print_norms();
  print_functions();
  print_depthwise();
  print_steps();
}
