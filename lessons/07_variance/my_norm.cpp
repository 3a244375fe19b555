// A norm made of your answers: the statistics are yours of lesson 7, the backward pass is yours of lesson 6. Each image
// is normalised as a whole, with a weight and a bias for each channel. It is a plug-in, which the norma command loads.
#include <norma/norma.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../06_norm_backward/exercise.h"
#include "exercise.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

constexpr double kEps = 1e-5;
constexpr int64_t kPiece = 64;  ///< elements that are summed up in one go

/// The moments of an image: pieces by gap 1, what is left over by gap 2, all merged by gap 3. T is the dtype of the
/// image; Number is float or double.
template <class T, class Number = compute_t<T>>
Moments<Number> moments_of(const T* x, int64_t count) {
  Moments<Number> all;
  std::array<Number, kPiece> piece;
  int64_t i = 0;
  for (; i + kPiece <= count; i += kPiece) {
    std::transform(x + i, x + i + kPiece, piece.begin(), [](T element) { return static_cast<Number>(element); });
    all = merged(all, two_passes(std::span<const Number>(piece)));
  }
  Moments<Number> rest;
  for (; i < count; ++i) {
    take_in(rest, static_cast<Number>(x[i]));
  }
  return merged(all, rest);
}

template <class Number>
double rstd_of(const Moments<Number>& moments) {
  return 1 / std::sqrt(static_cast<double>(moments.m2) / static_cast<double>(moments.count) + kEps);
}

/// The place of x's weights: element i of an image belongs to channel i / run % channels.
struct Channels {
  int64_t channels;
  int64_t run;  ///< elements of one channel in a row: 1 in channels_last

  explicit Channels(const Tensor& x)
      : channels(x.size(1)),
        run(x.suggest_memory_format() == MemoryFormat::channels_last ? 1 : x.size(2) * x.size(3)) {}
  [[nodiscard]] size_t of(int64_t i) const { return static_cast<size_t>(i / run % channels); }
};

/// y = (x - mean) * rstd * weight + bias, with mean and rstd of each image. x (N, C, H, W), without gaps.
Tensor forward(const Tensor& x, const std::vector<double>& weight, const std::vector<double>& bias) {
  const Tensor y = empty_like(x);
  const Channels channels(x);
  const int64_t count = x.numel() / std::max<int64_t>(1, x.size(0));
  dispatch_any_floating("my_norm", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Number = compute_t<T>;
    parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t image = first; image < last; ++image) {
        const T* const from = x.data<T>() + image * count;
        T* const to = y.data<T>() + image * count;
        const Moments<Number> moments = moments_of(from, count);
        const auto rstd = static_cast<Number>(rstd_of(moments));
        for (int64_t i = 0; i < count; ++i) {
          const auto w = static_cast<Number>(weight[channels.of(i)]);
          const auto b = static_cast<Number>(bias[channels.of(i)]);
          assign(to[i], (static_cast<Number>(from[i]) - moments.mean) * rstd * w + b);
        }
      }
    });
  });
  return y;
}

/// The gradients of x, weight and bias.
Tensors backward(const Tensor& x, const Tensor& dy, const std::vector<double>& weight) {
  const Tensor dx = empty_like(x);
  const Channels channels(x);
  const int64_t count = x.numel() / std::max<int64_t>(1, x.size(0));
  // Of each image on its own, and added up in the order of the images: the same bits for any number of threads.
  const auto width = static_cast<size_t>(channels.channels);
  std::vector<double> of_images(static_cast<size_t>(x.size(0)) * 2 * width, 0);
  dispatch_any_floating("my_norm", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Number = compute_t<T>;
    parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t image = first; image < last; ++image) {
        const T* const from = x.data<T>() + image * count;
        const T* const gradient = dy.data<T>() + image * count;
        const Moments<Number> moments = moments_of(from, count);
        Row row{.mean = static_cast<double>(moments.mean), .rstd = rstd_of(moments)};
        for (int64_t i = 0; i < count; ++i) {
          row.x.push_back(static_cast<double>(static_cast<Number>(from[i])));
          row.dy.push_back(static_cast<double>(static_cast<Number>(gradient[i])));
          row.weight.push_back(weight[channels.of(i)]);
        }
        const std::vector<double> of_x = gradient_of_x(row, sums_of(row));
        std::vector<double> dweight(row.x.size(), 0);
        std::vector<double> dbias(row.x.size(), 0);
        add_parameter_gradients(row, dweight, dbias);
        double* const sums = of_images.data() + static_cast<size_t>(image) * 2 * width;
        for (int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<size_t>(i);
          assign(dx.data<T>()[image * count + i], static_cast<Number>(of_x[at]));
          sums[channels.of(i)] += dweight[at];
          sums[width + channels.of(i)] += dbias[at];
        }
      }
    });
  });
  std::vector<double> total(2 * width, 0);
  for (size_t i = 0; i < of_images.size(); ++i) {
    total[i % (2 * width)] += of_images[i];
  }
  const Tensor both = from_vector(total, {2, channels.channels});
  return {dx, select(both, 0, 0), select(both, 0, 1)};
}

/// The same with Norma's differentiable ops, for derivatives of the gradient.
Tensor composed(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - mean(x, {1, 2, 3}, {.keepdim = true});
  const Tensor rstd = rsqrt(mean(centred * centred, {1, 2, 3}, {.keepdim = true}) + kEps);
  const Sizes along_channels{x.size(1), 1, 1};
  return norma::to(centred * rstd * view(weight, along_channels) + view(bias, along_channels), x.dtype());
}

Tensor my_norm(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor x = contiguous(input, input.suggest_memory_format());  // a copy only if it has gaps
  const Tensor y = forward(x.detach(), weight.to_vector<double>(), bias.to_vector<double>());
  return record("my_norm", {x, weight, bias}, y, {x, weight, bias},
                [](const Tensor& dy, const BackwardContext& context) -> Tensors {
                  const Tensors saved = {context.saved(0), context.saved(1), context.saved(2)};
                  if (context.create_graph()) {
                    const auto f = [](const Tensors& in) { return Tensors{composed(in[0], in[1], in[2])}; };
                    return gradients_of_composed(f, saved, {dy}, context);
                  }
                  Tensors gradients = backward(saved[0], contiguous(dy, saved[0].suggest_memory_format()),
                                               saved[1].to_vector<double>());
                  gradients[1] = norma::to(gradients[1], saved[1].dtype());
                  gradients[2] = norma::to(gradients[2], saved[2].dtype());
                  return gradients;
                });
}

class MyNorm : public nn::Module {
 public:
  explicit MyNorm(int64_t channels)
      : weight_(register_parameter("weight", ones({channels}))), bias_(register_parameter("bias", zeros({channels}))) {}

  Tensor forward(const Tensor& x) override { return my_norm(x, weight_, bias_); }
  [[nodiscard]] std::string name() const override { return "MyNorm"; }

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("mine", [](int64_t channels) { return std::make_shared<MyNorm>(channels); });
}
