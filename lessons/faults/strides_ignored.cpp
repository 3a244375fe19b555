// Instance norm without weights, with a kernel of its own for the forward pass.
//   y = (x - mean) / sqrt(variance + eps), over the pixels of each channel of each image
#include <norma/norma.h>

#include <cmath>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

constexpr double kEps = 1e-5;

/// The place of pixel (h, w) of channel c of image n, in elements.
int64_t place(const Tensor& x, int64_t n, int64_t c, int64_t h, int64_t w) {
  return ((n * x.size(1) + c) * x.size(2) + h) * x.size(3) + w;
}

template <class Function>
void for_each_pixel(const Tensor& x, Function f) {
  for (int64_t h = 0; h < x.size(2); ++h) {
    for (int64_t w = 0; w < x.size(3); ++w) {
      f(h, w);
    }
  }
}

Tensor computed(const Tensor& x) {
  const Tensor y = empty_like(x);
  dispatch_any_floating("plane_norm", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Number = compute_t<T>;
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    const auto pixels = static_cast<double>(x.size(2) * x.size(3));
    for (int64_t n = 0; n < x.size(0); ++n) {
      for (int64_t c = 0; c < x.size(1); ++c) {
        const auto number = [&](int64_t h, int64_t w) {
          return static_cast<double>(static_cast<Number>(from[place(x, n, c, h, w)]));
        };
        double sum = 0;
        for_each_pixel(x, [&](int64_t h, int64_t w) { sum += number(h, w); });
        const double mean = sum / pixels;
        double squares = 0;
        for_each_pixel(x, [&](int64_t h, int64_t w) { squares += (number(h, w) - mean) * (number(h, w) - mean); });
        const double r = 1 / std::sqrt(squares / pixels + kEps);
        for_each_pixel(x, [&](int64_t h, int64_t w) {
          assign(to[place(y, n, c, h, w)], static_cast<Number>((number(h, w) - mean) * r));
        });
      }
    }
  });
  return y;
}

Tensor plane_norm(const Tensor& x) {
  return Op("plane_norm")
      .record({x}, computed(x.detach()), {x}, [](const Tensor& dy, const BackwardContext& context) -> Tensors {
        const auto composed = [](const Tensors& in) -> Tensors {
          return {instance_norm(in[0], {}, {}, {.eps = kEps})};
        };
        return gradients_of_composed(composed, {context.saved(0)}, {dy}, context);
      });
}

class PlaneNorm : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return plane_norm(x); }
  [[nodiscard]] std::string name() const override { return "PlaneNorm"; }
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm(
      "strides_ignored",
      {.make = [](const nn::NormChoice&, int64_t) { return std::make_shared<PlaneNorm>(); }, .needs_pixels = true});
}
