// Lesson 7: a formula for the variance that is right on paper and wrong in a computer.
#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "picture.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

/// x rounded to 4 decimal digits, as by a calculator that has no more.
double four_digits(double x) {
  if (x == 0) {
    return 0;
  }
  const double unit = std::pow(10, std::floor(std::log10(std::abs(x))) - 3);
  return std::round(x / unit) * unit;
}

/// `count` floats around `offset`, between 2 below and 2 above: their variance is about 4 / 3.
std::vector<float> numbers_around(double offset, int count = 4096) {
  Generator generator(7);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& element : x) {
    element = static_cast<float>(offset + 4 * generator.uniform() - 2);
  }
  return x;
}

/// E[x²] - E[x]², all in float.
float textbook_variance(const std::vector<float>& x) {
  float sum = 0;
  float sum_of_squares = 0;
  for (const float element : x) {
    sum += element;
    sum_of_squares += element * element;
  }
  const auto n = static_cast<float>(x.size());
  return sum_of_squares / n - (sum / n) * (sum / n);
}

Tensor as_row(const std::vector<float>& x) {
  return from_vector(x, {1, static_cast<int64_t>(x.size())});
}

/// The variance by Norma's plain reference, in the widest type there is.
double true_variance(const std::vector<float>& x) {
  const NormReference reference({.spec = {.reduce = {1}}, .x = as_row(x)});
  return static_cast<double>(reference.var(0));
}

/// The variance by one of Norma's fast kernels, in float.
double variance_by(Statistics statistics, const std::vector<float>& x) {
  return norm_statistics(as_row(x), {.reduce = {1}, .statistics = statistics}).var.to_vector<double>()[0];
}

/// "1e-05": a power of ten that the error is below. A text of exact digits would differ from machine to machine.
std::string bound_of(double error) {
  return error == 0 ? "0" : fmt::format("{:.0e}", std::pow(10, std::ceil(std::log10(std::abs(error)))));
}

/// How far T comes by adding 1, `count` times.
template <class T>
float sum_of_ones(int count) {
  T sum(0.0F);
  for (int i = 0; i < count; ++i) {
    sum = T(static_cast<float>(sum) + 1);
  }
  return static_cast<float>(sum);
}

/// The largest error of layer norm's output by some statistics, against the reference.
double worst_output(Statistics statistics, const Tensor& x) {
  const NormSpec spec{.reduce = {1}, .statistics = statistics};
  const std::vector<double> right = NormReference({.spec = spec, .x = x}).all(&NormReference::y);
  const std::vector<double> y = normalize(x, spec).to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    worst = std::isfinite(y[i]) ? std::max(worst, std::abs(y[i] - right[i])) : INFINITY;
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  // 1001² is 1002001, which 4 digits do not hold.
  fmt::print("with 4 digits: E[x²] = ({} + {} + {}) / 3 = {}, E[x]² = {}, difference {}\n\n",
             four_digits(1001.0 * 1001), four_digits(1002.0 * 1002), four_digits(1003.0 * 1003),
             four_digits(3012000.0 / 3), four_digits(1002.0 * 1002),
             four_digits(3012000.0 / 3) - four_digits(1002.0 * 1002));

  fmt::print("mean     variance  E[x²] - E[x]² in float    m² · 2^-24\n");
  for (const double offset : {0.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0}) {
    const std::vector<float> x = numbers_around(offset);
    fmt::print("{:<7g} {:9.4f} {:23.4f} {:13.4f}\n", offset, true_variance(x), textbook_variance(x),
               offset * offset * std::exp2(-24));
  }

  fmt::print("\n{:15}  relative error of the variance        error of\n", "");
  fmt::print("{:15}  mean 0  mean 100  mean 1e4  mean 1e6   output\n", "");
  for (const Statistics statistics : all_statistics()) {
    fmt::print("{:<15}", to_string(statistics));
    for (const double offset : {0.0, 1e2, 1e4, 1e6}) {
      const std::vector<float> x = numbers_around(offset);
      fmt::print(" {:>{}}", bound_of(variance_by(statistics, x) / true_variance(x) - 1), offset == 0 ? 7 : 9);
    }
    fmt::print(" {:>8}\n", bound_of(worst_output(statistics, as_row(numbers_around(1e4)))));
  }

  fmt::print("\nadding 1, 3000 times: bfloat16 {}, float16 {}, float32 {}\n", sum_of_ones<bfloat16>(3000),
             sum_of_ones<float16>(3000), sum_of_ones<float>(3000));
  for (const double value : {1.0, 100.0, 1000.0}) {
    const auto next = [](float x) { return std::bit_cast<bfloat16>(static_cast<uint16_t>(bfloat16(x).bits + 1)); };
    fmt::print("after {} the next bfloat16 is {}\n", value, static_cast<float>(next(static_cast<float>(value))));
  }

  lessons::Curve measured{.name = "E[x²] - E[x]²", .points = {}, .color = lessons::Color::two};
  lessons::Curve law{.name = "law", .points = {}, .color = lessons::Color::one};
  for (double offset = 1; offset < 2e5; offset *= std::sqrt(10.0)) {
    const std::vector<float> x = numbers_around(offset);
    const double right = true_variance(x);
    measured.points.emplace_back(offset, std::abs(textbook_variance(x) / right - 1));
    law.points.emplace_back(offset, offset * offset / right * std::exp2(-24));
  }
  lessons::curve_chart("The error of E[x²] - E[x]²", "It grows with the square of the mean.", {"mean of the row", true},
                       {"relative error of the variance in float", true}, {law, measured})
      .save(lessons::picture_folder(argc, argv), "cancellation");
}
