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
          {"layer", {.reduce = {1, 2, 3}, .affine = {1, 2, 3}}},
          {"a weight for each pixel", {.reduce = {1, 2}, .affine = {2, 3}, .groups = 2}}};
}

/// x, what is added and dy, in one dtype and layout. Drawing the numbers takes longer than the norms.
struct Images {
  Tensor x, residual, dy;
};

Images images(const Sizes& sizes, DType dtype, Layout layout) {
  const auto draw = [&](uint64_t seed) {
    return in_layout(to(random_tensor(sizes, seed, DType::float32), dtype), layout);
  };
  return {draw(1), draw(4), draw(5)};
}

/// Output and all gradients.
std::vector<std::vector<float>> run(const NormSpec& spec, const Images& images, const Tensor& weight,
                                    const Tensor& bias, Activation activation, bool with_residual) {
  Tensors inputs{images.x.detach(), weight.detach(), bias.detach()};
  if (with_residual) {
    inputs.push_back(images.residual.detach());
  }
  for (Tensor& input : inputs) {
    input.set_requires_grad();
  }
  const Tensor y = norm_act(inputs[0], spec, inputs[1], inputs[2],
                            {.activation = activation, .residual = with_residual ? inputs[3] : Tensor{}});
  y.backward(images.dy);
  std::vector<std::vector<float>> results{y.to_vector<float>()};
  for (const Tensor& input : inputs) {
    results.push_back(input.grad().to_vector<float>());
  }
  return results;
}

}  // namespace

TEST_CASE("norms: the same bits for 1, 2 and 3 threads: dtypes, memory formats, activations") {
  const int before = num_threads();
  // Images shared among threads, an image for each, sets that fit no vector, those of more columns than a tile has.
  for (const Sizes& sizes : {Sizes{3, 64, 48, 40}, Sizes{2, 48, 14, 14}, Sizes{4, 36, 7, 7}, Sizes{4, 64, 7, 7}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
        const Images drawn = images(sizes, dtype, layout);
        for (const auto& [name, spec] : specs(drawn.x)) {
          Sizes affine;
          for (const int64_t axis : spec.affine) {
            affine.push_back(sizes[axis]);
          }
          const Tensor weight = random_tensor(affine, 2, DType::float32);
          const Tensor bias = random_tensor(affine, 3, DType::float32);
          for (const auto& [activation, residual] :
               {std::pair(Activation::identity, false), std::pair(Activation::relu, true)}) {
            set_num_threads(1);
            const auto first = run(spec, drawn, weight, bias, activation, residual);
            for (const int threads : {2, 3}) {
              set_num_threads(threads);
              const auto results = run(spec, drawn, weight, bias, activation, residual);
              CAPTURE(name);
              CAPTURE(to_string(sizes));
              CAPTURE(to_string(dtype));
              CAPTURE(to_string(layout));
              CAPTURE(threads);
              CAPTURE(residual);
              for (size_t i = 0; i < results.size(); ++i) {
                CAPTURE(i);
                CHECK((results[i] == first[i]));  // never true of NaN
              }
            }
          }
        }
      }
    }
  }
  set_num_threads(before);
}
