#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

// Results of 4 MB and more are stored around the caches (ops/norm/cpu/walks.h).

namespace norma::test {
namespace {

struct Result {
  Tensor y;
  Tensor dx;
  Tensor dresidual;
};

using Function = std::function<Tensor(const Tensor& x, const ActOptions& then)>;

Result run(const Function& f, const Tensor& x, const Tensor& residual, const Tensor& dy, Activation activation) {
  Tensor input = x.detach();
  Tensor added = residual.defined() ? residual.detach() : Tensor();
  input.set_requires_grad();
  if (added.defined()) {
    added.set_requires_grad();
  }
  const Tensor y = f(input, {.activation = activation, .residual = added});
  y.backward(dy);
  return {y.detach(), input.grad(), added.defined() ? added.grad() : Tensor()};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return max_difference(to(a, DType::float64), to(b, DType::float64)) == 0;
}

}  // namespace

TEST_CASE("norm: large images have the bits of each image alone, streamed or not, every walk") {
  const DefaultDeviceGuard on_cpu(kCpu);  // whose stores they are; other devices cut their work by the number of images
  constexpr int64_t kImages = 9;
  const Sizes sizes{kImages, 64, 61, 64};  // 8.6 MB in float32, 4.3 MB in 16 bits
  const std::pair<std::string, Function> norms[] = {
      {"layer2d", [](const Tensor& x, const ActOptions& then) { return layer_norm_2d(x, {}, {}, {}, then); }},
      {"instance", [](const Tensor& x, const ActOptions& then) {
         return norm_act(x, {.reduce = {2, 3}}, {}, {}, then);
       }}};
  for (const auto& [name, f] : norms) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(name);
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(format));
        const Tensor x = to(to(random_tensor(sizes, 1, DType::float32), dtype), format);
        const Tensor dy = to(to(random_tensor(sizes, 2, DType::float32), dtype), format);
        const Tensor residual = to(to(random_tensor(sizes, 3, DType::float32), dtype), format);
        for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu}) {
          const bool adds = activation == Activation::relu;
          CAPTURE(to_string(activation));
          const Result all = run(f, x, adds ? residual : Tensor(), dy, activation);
          for (const int64_t image : {int64_t{0}, kImages - 1}) {
            const auto one = [&](const Tensor& of) { return narrow(of, 0, image, 1); };
            const Result alone = run(f, one(x), adds ? one(residual) : Tensor(), one(dy), activation);
            CHECK(same_bits(one(all.y), alone.y));
            CHECK(same_bits(one(all.dx), alone.dx));
            CHECK((!adds || same_bits(one(all.dresidual), alone.dresidual)));
          }
        }
      }
    }
  }
}

}  // namespace norma::test
