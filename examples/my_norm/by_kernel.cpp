// A norm with kernels and a backward pass of your own: each image is divided by the root of its mean square.
//   y = x · r,  r = 1 / sqrt(mean(x²) + eps)            dx = r · (dy - y · mean(dy · y))
// An image is one run of memory in either memory format, so the kernels need not know which.
#include <norma/norma.h>

#include <algorithm>
#include <cmath>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

constexpr double kEps = 1e-5;

/// The mean of a · b over `count` elements.
template <class T>
double mean_of_products(const T* a, const T* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(static_cast<compute_t<T>>(a[i])) * static_cast<double>(static_cast<compute_t<T>>(b[i]));
  }
  return sum / static_cast<double>(count);
}

/// to = scale · (a - b · factor) for each image of dense tensors with the same strides. Scale and factor come from the
/// image's elements of x and, if it is defined, of dy. Without dy: y = r · x. With dy: dx.
Tensor computed(const Tensor& x, const Tensor& dy) {
  const Tensor result = empty_like(x);
  const int64_t count = x.numel() / std::max<int64_t>(1, x.size(0));  // not x.stride(0), which may be anything for one
                                                                      // image
  dispatch_any_floating("image_norm", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Number = compute_t<T>;
    parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t image = first; image < last; ++image) {
        const T* const from = x.data<T>() + image * count;
        T* const to = result.data<T>() + image * count;
        const double r = 1 / std::sqrt(mean_of_products(from, from, count) + kEps);
        if (!dy.defined()) {
          for (int64_t i = 0; i < count; ++i) {
            assign(to[i], static_cast<Number>(from[i]) * static_cast<Number>(r));
          }
          continue;
        }
        const T* const gradient = dy.data<T>() + image * count;
        const auto share = static_cast<Number>(r * r * mean_of_products(gradient, from, count));  // y = x · r
        for (int64_t i = 0; i < count; ++i) {
          assign(to[i],
                 static_cast<Number>(r) * (static_cast<Number>(gradient[i]) - static_cast<Number>(from[i]) * share));
        }
      }
    });
  });
  return result;
}

Tensor image_norm(const Tensor& input) {
  const Tensor x = contiguous(input, input.suggest_memory_format());  // a copy only if it has gaps
  return Op("image_norm")
      .record({x}, computed(x.detach(), {}), {x}, [](const Tensor& dy, const BackwardContext& context) -> Tensors {
        const Tensor saved = context.saved(0);
        if (!context.create_graph()) {
          return {computed(saved, contiguous(dy, saved.suggest_memory_format()))};
        }
        // Derivatives of the gradient come from the same formula in differentiable ops.
        const auto composed = [](const Tensors& in) -> Tensors {
          return {in[0] * rsqrt(mean(in[0] * in[0], {1, 2, 3}, {.keepdim = true}) + kEps)};
        };
        return gradients_of_composed(composed, {saved}, {dy}, context);
      });
}

class ImageNorm : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return image_norm(x); }
  [[nodiscard]] std::string name() const override { return "ImageNorm"; }
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("image", [](int64_t) { return std::make_shared<ImageNorm>(); });
}
