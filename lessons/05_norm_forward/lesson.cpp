// Lesson 5: the forward pass of a norm, by hand, and which elements share a mean.
#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

using Row = std::vector<double>;

double mean_of(const Row& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

/// The mean of the squares of x - mean.
double var_of(const Row& x, double mean) {
  double squares = 0;
  for (const double value : x) {
    squares += (value - mean) * (value - mean);
  }
  return squares / static_cast<double>(x.size());
}

Row normalized(const Row& x, double eps) {
  const double mean = mean_of(x);
  const double rstd = 1 / std::sqrt(var_of(x, mean) + eps);
  Row xhat;
  for (const double value : x) {
    xhat.push_back((value - mean) * rstd);
  }
  return xhat;
}

void print(const std::string& name, const Row& numbers) {
  fmt::print("{:<7}", name);
  for (const double value : numbers) {
    fmt::print(" {:7.3f}", value);
  }
  fmt::print("\n");
}

/// 64 numbers go through 20 layers of random weights that make them a little larger, with and without a norm.
void drift(const std::string& folder) {
  constexpr int64_t kWidth = 64;
  std::array<lessons::Curve, 2> curves = {{{.name = "without a norm", .points = {}, .color = lessons::Color::two},
                                           {.name = "with a norm", .points = {}, .color = lessons::Color::one}}};
  for (const bool with_norm : {false, true}) {
    Generator generator(1);
    Row x = randn({kWidth}, {.dtype = DType::float64}, generator).to_vector<double>();
    for (int layer = 1; layer <= 20; ++layer) {
      const Row weight = randn({kWidth, kWidth}, {.dtype = DType::float64}, generator).to_vector<double>();
      Row y(kWidth, 0);
      for (size_t i = 0; i < y.size(); ++i) {
        for (size_t j = 0; j < x.size(); ++j) {
          y[i] += 0.2 * weight[i * x.size() + j] * x[j];
        }
      }
      x = with_norm ? normalized(y, 1e-5) : y;
      const double spread = std::sqrt(var_of(x, mean_of(x)));
      curves[with_norm ? 1 : 0].points.emplace_back(layer, spread);
      if (layer % 5 == 0) {
        fmt::print("{:<7} norm, layer {:2}: deviation {:6.1f}\n", with_norm ? "with" : "without", layer, spread);
      }
    }
  }
  lessons::curve_chart("The deviation of the numbers behind each layer",
                       "Without a norm it grows to thousands in 20 layers, with a norm it stays at 1",
                       {.label = "layer"}, {.label = "deviation", .logarithmic = true}, {curves[0], curves[1]})
      .save(folder, "drift");
}

/// Two images of four channels, a cell for each channel of each image: its number and color are those of its set.
void sets(const std::string& folder) {
  using lessons::Color;
  const Sizes sizes{2, 4, 3, 5};
  const std::vector<std::pair<std::string, NormSpec>> norms = {
      {"batch norm", {.reduce = {0, 2, 3}}},
      {"instance norm", {.reduce = {2, 3}}},
      {"group norm, 2 groups", {.reduce = {1, 2, 3}, .groups = 2}},
      {"layer norm", {.reduce = {1, 2, 3}}},
  };
  lessons::Picture picture(
      250, "Which elements share a mean",
      "For each norm, two rows of images and four columns of channels; cells of one set are alike");
  for (size_t k = 0; k < norms.size(); ++k) {
    const auto& [name, spec] = norms[k];
    const NormSets numbers(sizes, spec);
    fmt::print("{:<20} {:2} sets of {:2}\n", name, numbers.sets(), numbers.set_size());
    const double left = k % 2 == 0 ? 4 : 188;
    const double top = k < 2 ? 20 : 142;
    picture.text(left, top, name, {.bold = true});
    numbers.for_each([&](size_t element, size_t set, size_t) {
      if (element % 15 == 0) {  // a cell has 15 elements, all of one set
        const double x = left + 40 * static_cast<double>(element / 15 % 4);
        const double y = top + 10 + 40 * static_cast<double>(element / 60);
        picture.box(x, y, 38, 38, static_cast<Color>(3 + set % 6), true, fmt::format("{}", set + 1));
      }
    });
  }
  picture.save(folder, "sets");
  fmt::print("{:<20} {:2} sets of {:2}\n", "layer norm 2d", NormSets(sizes, {.reduce = {1}}).sets(), 4);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = lessons::picture_folder(argc, argv);
  const Row x = {1, 3, 4, 5, 7};
  const double mean = mean_of(x);
  const double var = var_of(x, mean);
  print("x", x);
  print("mean", {mean});
  print("var", {var});
  print("rstd", {1 / std::sqrt(var)});
  print("xhat", normalized(x, 0));

  const Row weight = {2, 2, 2, 1, 1};
  const Row bias = {10, 10, 10, 0, 0};
  Row y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(normalized(x, 0)[i] * weight[i] + bias[i]);
  }
  print("weight", weight);
  print("bias", bias);
  print("y", y);

  const double without_eps = normalized({2, 2, 2}, 0)[0];
  fmt::print("\nall elements 2, eps 0:    xhat is {}\n", std::isnan(without_eps) ? "not a number" : "a number");
  fmt::print("all elements 2, eps 1e-5: xhat is {:g}\n", normalized({2, 2, 2}, 1e-5)[0]);
  fmt::print("var 1e-6, eps 1e-5 inside the root:  rstd {:.1f}\n", 1 / std::sqrt(1e-6 + 1e-5));
  fmt::print("var 1e-6, eps 1e-5 outside the root: rstd {:.1f}\n\n", 1 / (std::sqrt(1e-6) + 1e-5));

  drift(folder);
  fmt::print("\n");
  sets(folder);

  const auto tensor = [](const Row& row) { return from_vector<double>(row, {static_cast<int64_t>(row.size())}); };
  const Tensor norma_y = layer_norm(tensor(x), {5}, tensor(weight), tensor(bias), {.eps = 0});
  fmt::print("\n");
  print("Norma", norma_y.to_vector<double>());
}
