// Each image is divided by the root of its mean square, with a kernel of its own.
//   y = x · r,  r = 1 / sqrt(mean(x²) + eps)            dx = r · (dy - y · mean(dy · y))
#include <norma/norma.h>

#include <cmath>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

constexpr double kEps = 1e-5;

/// The mean of a · b over `count` elements.
template <class T>
double mean_of_products(const T* a, const T* b, int64_t count) {
  T sum{};
  for (int64_t i = 0; i < count; ++i) {
    using Number = compute_t<T>;
    assign(sum, static_cast<Number>(sum) + static_cast<Number>(a[i]) * static_cast<Number>(b[i]));
  }
  return static_cast<double>(static_cast<compute_t<T>>(sum)) / static_cast<double>(count);
}

/// Without dy: y. With dy: dx. An image is one run of memory in either memory format.
Tensor computed(const Tensor& x, const Tensor& dy) {
  const Tensor result = empty_like(x);
  const int64_t count = x.numel() / x.size(0);
  dispatch_any_floating("image_norm", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Number = compute_t<T>;
    parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t image = first; image < last; ++image) {
        const T* const from = x.data<T>() + image * count;
        const T* const gradient = dy.defined() ? dy.data<T>() + image * count : from;
        T* const to = result.data<T>() + image * count;
        const double r = 1 / std::sqrt(mean_of_products(from, from, count) + kEps);
        const double share = dy.defined() ? r * r * mean_of_products(gradient, from, count) : 0;
        for (int64_t i = 0; i < count; ++i) {
          assign(to[i], static_cast<Number>(r) * (static_cast<Number>(gradient[i]) -
                                                  static_cast<Number>(from[i]) * static_cast<Number>(share)));
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
  nn::register_norm("half_sums", [](int64_t) { return std::make_shared<ImageNorm>(); });
}
