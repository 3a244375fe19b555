#include "core/parallel.h"
#include "norm_reference.h"
#include "ops/shape/copy.h"

#include <doctest/doctest.h>

using namespace norma;
using namespace norma::test;

namespace {

/// The specs that cover every loop, for x (N, C, H, W).
std::vector<std::pair<std::string, NormSpec>> specs(const Tensor& x) {
  return {{"batch", {.reduce = {0, 2, 3}, .affine = {1}}},
          {"layer2d", {.reduce = {1}, .affine = {1}}},
          {"group", {.reduce = {1, 2, 3}, .affine = {1}, .groups = x.size(1) / 4}},
          {"one group", {.reduce = {1, 2, 3}, .affine = {1}}},
          {"instance", {.reduce = {2, 3}, .affine = {1}}},
          {"rms2d", {.reduce = {1}, .affine = {1}, .centring = Centring::none}},
          {"layer", {.reduce = {1, 2, 3}, .affine = {1, 2, 3}}}};
}

/// Output and all gradients.
Tensors run(const NormSpec& spec, const Sizes& sizes, DType dtype, Layout layout, Activation activation,
            bool residual) {
  Tensor x = in_layout(to(random_tensor(sizes, 1, DType::float32), dtype), layout);
  Sizes weights;
  for (const int64_t axis : spec.affine) {
    weights.push_back(sizes[axis]);
  }
  Tensor weight = random_tensor(weights, 2, DType::float32);
  Tensor bias = random_tensor(weights, 3, DType::float32);
  Tensor other = residual ? in_layout(to(random_tensor(sizes, 4, DType::float32), dtype), layout) : Tensor{};
  Tensors inputs{x, weight, bias};
  if (residual) {
    inputs.push_back(other);
  }
  for (Tensor& input : inputs) {
    input.set_requires_grad();
  }
  const Tensor y = norm_act(x, spec, weight, bias, {.activation = activation, .residual = other});
  y.backward(in_layout(to(random_tensor(sizes, 5, DType::float32), dtype), layout));
  Tensors results{y.detach()};
  for (const Tensor& input : inputs) {
    results.push_back(input.grad());
  }
  return results;
}

}  // namespace

TEST_CASE("norms: the same bits for 1, 2 and 3 threads: dtypes, memory formats, activations") {
  const int before = num_threads();
  // Images shared among threads, an image for each, sets that fit no vector, those of more columns than a tile has.
  for (const Sizes& sizes : {Sizes{3, 64, 48, 40}, Sizes{2, 48, 14, 14}, Sizes{4, 36, 7, 7}, Sizes{4, 64, 7, 7}}) {
    for (const auto& [name, spec] : specs(zeros(sizes))) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
        for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
          for (const auto& [activation, residual] :
               {std::pair(Activation::identity, false), std::pair(Activation::relu, true)}) {
            set_num_threads(1);
            const Tensors first = run(spec, sizes, dtype, layout, activation, residual);
            for (const int threads : {2, 3}) {
              set_num_threads(threads);
              const Tensors results = run(spec, sizes, dtype, layout, activation, residual);
              CAPTURE(name);
              CAPTURE(to_string(sizes));
              CAPTURE(to_string(dtype));
              CAPTURE(to_string(layout));
              CAPTURE(threads);
              CAPTURE(residual);
              for (size_t i = 0; i < results.size(); ++i) {
                CAPTURE(i);
                CHECK(max_difference(results[i], first[i]) == 0);
              }
            }
          }
        }
      }
    }
  }
  set_num_threads(before);
}
