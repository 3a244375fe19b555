// Lesson 13: 16 bits for a number, and two processes for a batch.
#include "exercise.h"
#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

using norma::bfloat16;
using norma::float16;
using norma::Tensor;

template <class T>
float rounded(double x) {
  return static_cast<float>(T(static_cast<float>(x)));
}

template <class T>
T from_bits(int bits) {
  T x;
  x.bits = static_cast<uint16_t>(bits);
  return x;
}

void formats() {
  fmt::print("           largest  smallest   after 1\n");
  const auto line = [](std::string_view name, double largest, double smallest, double next) {
    fmt::print("{:<9} {:8.3g} {:9.3g} {:9.7f}\n", name, largest, smallest, next);
  };
  using Float = std::numeric_limits<float>;
  line("float32", Float::max(), Float::denorm_min(), 1 + Float::epsilon());
  line("bfloat16", float(from_bits<bfloat16>(0x7F7F)), float(from_bits<bfloat16>(1)),
       float(from_bits<bfloat16>(0x3F81)));
  line("float16", float(from_bits<float16>(0x7BFF)), float(from_bits<float16>(1)), float(from_bits<float16>(0x3C01)));

  float weight32 = 1;
  float weight16 = 1;
  float sum32 = 0;
  float sum16 = 0;
  for (int step = 0; step < 1000; ++step) {
    weight32 += 0.001F;
    weight16 = rounded<bfloat16>(weight16 + 0.001F);
    sum32 += rounded<bfloat16>(0.1);
    sum16 = rounded<bfloat16>(sum16 + rounded<bfloat16>(0.1));
  }
  fmt::print("\na weight of 1, 1000 times plus 0.001: float32 {:.3f}, bfloat16 {:.3f}\n", weight32, weight16);
  fmt::print("a sum of 1000 times 0.1 in bfloat16:  float32 {:.1f}, bfloat16 {:.1f}\n\n", sum32, sum16);
}

/// Gradients as networks have them, over many powers of ten: what float16 keeps of them.
void loss_scale(const std::string& folder) {
  norma::Generator generator(1);
  const std::vector<double> powers =
      norma::randn({10000}, {.dtype = norma::DType::float64}, generator).to_vector<double>();
  std::vector<lessons::Curve> curves = {{.name = "become 0", .points = {}, .color = lessons::Color::two},
                                        {.name = "become infinite", .points = {}, .color = lessons::Color::one}};
  for (int exponent = 0; exponent <= 32; exponent += 4) {
    const double scale = std::exp2(exponent);
    double zeros = 0;
    double infinite = 0;
    for (const double power : powers) {
      const float kept = rounded<float16>(std::pow(10, -7.5 + 1.5 * power) * scale);
      zeros += kept == 0 ? 0.01 : 0;
      infinite += std::isinf(kept) ? 0.01 : 0;
    }
    if (exponent % 8 == 0) {
      fmt::print("scale 2^{:<2}: {:4.1f} % become 0, {:4.1f} % infinite\n", exponent, zeros, infinite);
    }
    curves[0].points.emplace_back(scale, zeros);
    curves[1].points.emplace_back(scale, infinite);
  }
  lessons::curve_chart("What float16 keeps of gradients", "More scale: fewer become 0, and more become infinite",
                       {.label = "scale of the loss", .logarithmic = true}, {.label = "% of the gradients"}, curves)
      .save(folder, "scale");

  // loss = 5e-9 / 2 · (weight - 3)²: a gradient of 5e-9 · (weight - 3), which float16 does not have.
  for (const bool scaled : {false, true}) {
    std::vector<float> weight = {0};
    LossScale state{.scale = scaled ? std::exp2(44) : 1};
    int skipped = 0;
    for (int step = 0; step < 60; ++step) {
      const float gradient = rounded<float16>(5e-9 * (weight[0] - 3) * state.scale);
      skipped += scaled_step(weight, {gradient}, 2e7, scaled ? 20 : 1000, state) ? 0 : 1;
    }
    fmt::print("{} scale: weight {:.2f} after 60 steps, {} of them left out, the scale is 2^{}\n",
               scaled ? "with   " : "without", weight[0], skipped, std::log2(state.scale));
  }
}

/// The gradient of a weight before a norm, for some images of a batch of 8.
std::vector<double> gradient_of(int64_t first, int64_t count, const norma::NormSpec* spec) {
  norma::Generator generator(2);
  const norma::TensorOptions options{.dtype = norma::DType::float64};
  const Tensor x = norma::narrow(norma::randn({8, 6}, options, generator), 0, first, count);
  const Tensor goal = norma::narrow(norma::randn({8, 5}, options, generator), 0, first, count);
  const Tensor weight = norma::randn({6, 5}, options, generator).set_requires_grad();
  const Tensor h = norma::matmul(x, weight);
  const Tensor error = (spec != nullptr ? norma::normalize(h, *spec) : h) - goal;
  norma::backward(norma::mean(error * error));
  return weight.grad().to_vector<double>();
}

void two_processes() {
  const norma::NormSpec batch{.reduce = {0}};
  const norma::NormSpec layer{.reduce = {1}};
  fmt::print("\nthe largest difference to the gradient of the whole batch\n");
  fmt::print("            4 + 4 images   5 + 3, plain mean   5 + 3, by images\n");
  const auto line = [](std::string_view name, const norma::NormSpec* spec) {
    const std::vector<double> whole = gradient_of(0, 8, spec);
    const auto worst = [&](int64_t first, bool by_images) {
      const auto part = [&](int64_t from, int64_t count) {
        return Part{.images = by_images ? count : 1, .gradient = gradient_of(from, count, spec)};
      };
      const std::vector<double> merged = averaged({part(0, first), part(first, 8 - first)});
      double most = 0;
      for (size_t i = 0; i < whole.size(); ++i) {
        most = std::max(most, std::abs(merged[i] - whole[i]));
      }
      return most;
    };
    fmt::print("{:<10} {:13.3f} {:19.3f} {:18.3f}\n", name, worst(4, true), worst(5, false), worst(5, true));
  };
  line("no norm", nullptr);
  line("layer norm", &layer);
  line("batch norm", &batch);

  const Statistics a{.count = 3, .mean = 3, .var = 8.0 / 3};
  const Statistics b{.count = 2, .mean = 6, .var = 1};
  const Statistics all = of_all({a, b});
  fmt::print("\n1 3 5: mean {}, variance {:.3f}; 5 7: mean {}, variance {:.3f}; all: mean {:.3f}, variance {:.3f}\n",
             a.mean, a.var, b.mean, b.var, all.mean, all.var);
}

}  // namespace

int main(int argc, char** argv) {
  formats();
  loss_scale(lessons::picture_folder(argc, argv));
  two_processes();
}
