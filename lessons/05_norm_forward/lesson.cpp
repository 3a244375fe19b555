// Lesson 5: the forward pass of a norm, by hand, and which elements share a mean.
#include "depth.h"
#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

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

/// Two images of four channels with 2 rows of 3 pixels, a cell for each pixel of each channel: its number is that of
/// its set, and sets 1, 8, 15 … share a color.
void sets(const std::string& folder) {
  using lessons::Color;
  const std::vector<std::pair<std::string, NormSpec>> norms = {
      {"batch norm", {.reduce = {0, 2, 3}}},
      {"instance norm", {.reduce = {2, 3}}},
      {"group norm, 2 groups", {.reduce = {1, 2, 3}, .groups = 2}},
      {"layer norm", {.reduce = {1, 2, 3}}},
      {"layer norm 2d", {.reduce = {1}}},
  };
  const Sizes drawn{2, 4, 2, 3};
  lessons::Picture picture(
      604, "Which elements share a mean",
      "For each norm, two rows of images and four columns of channels; cells of one set are alike");
  for (size_t k = 0; k < norms.size(); ++k) {
    const auto& [name, spec] = norms[k];
    const NormSets full({2, 4, 3, 5}, spec);
    fmt::print("{:<20} {:2} sets of {:2}\n", name, full.sets(), full.set_size());
    const double title = 18 + 120 * static_cast<double>(k);
    const double top = title + 16;  // the line of the channels
    picture.text(4, title, name, {.bold = true});
    for (size_t c = 0; c < 4; ++c) {
      picture.text(130 + 58 * static_cast<double>(c), top, fmt::format("channel {}", c),
                   {.color = Color::faint, .size = 11, .anchor = "middle"});
    }
    for (size_t n = 0; n < 2; ++n) {
      picture.text(4, top + 28 + 42 * static_cast<double>(n), fmt::format("image {}", n), {.color = Color::faint});
    }
    const NormSets numbers(drawn, spec);
    numbers.for_each([&](size_t element, size_t set, size_t) {
      const size_t pixel = element % 6;
      const double x = 104 + 58 * static_cast<double>(element / 6 % 4) + 18 * static_cast<double>(pixel % 3);
      const double y = top + 6 + 42 * static_cast<double>(element / 24) + 18 * static_cast<double>(pixel / 3);
      picture.box(x, y, 17, 17, static_cast<Color>(3 + set % 6), set < 6, fmt::format("{}", set + 1));
    });
  }
  picture.save(folder, "sets");
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

  double squares = 0;
  for (const double value : x) {
    squares += value * value / static_cast<double>(x.size());
  }
  Row rms;
  for (const double value : x) {
    rms.push_back(value / std::sqrt(squares));
  }
  print("RMS", rms);
  fmt::print("mean of RMS norm's output: {:.3f}, mean square: {:.3f}\n", mean_of(rms), var_of(rms, 0));

  const double without_eps = normalized({2, 2, 2}, 0)[0];
  fmt::print("\nall elements 2, eps 0:    xhat is {}\n", std::isnan(without_eps) ? "not a number" : "a number");
  fmt::print("all elements 2, eps 1e-5: xhat is {:g}\n", normalized({2, 2, 2}, 1e-5)[0]);
  fmt::print("var 1e-6, eps 1e-5 inside the root:  rstd {:.1f}\n", 1 / std::sqrt(1e-6 + 1e-5));
  fmt::print("var 1e-6, eps 1e-5 outside the root: rstd {:.1f}\n\n", 1 / (std::sqrt(1e-6) + 1e-5));

  drift(folder);
  fmt::print("\n");
  rates();
  fmt::print("\n");
  sets(folder);

  const auto tensor = [](const Row& row) { return from_vector<double>(row, {static_cast<int64_t>(row.size())}); };
  const Tensor norma_y = layer_norm(tensor(x), {5}, tensor(weight), tensor(bias), {.eps = 0});
  fmt::print("\n");
  print("Norma", norma_y.to_vector<double>());
}
