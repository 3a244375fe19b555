#pragma once

#include "ops/conv/conv.h"
#include "ops/map_norm/reference.h"
#include "support.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

// What the norms with a formula of their own should give (ops/map_norm/reference.h), and convolutions with a
// standardized weight.

namespace norma::test {

/// Results by name: "y", "dx", "d" and the name of a parameter; "terms": the largest of what they are sums of.
using NormValues = std::map<std::string, std::vector<double>>;

using NamedParameters = std::vector<std::pair<std::string, Tensor>>;

/// The gradients get their place among the results. Those of `plain` parameters, which are sums over many elements, do
/// not count for the terms.
inline void insert_gradients(NormValues& values, const std::map<std::string, formula::Gradient>& gradients,
                             const std::set<std::string>& plain) {
  formula::Wide terms = 0;
  for (const auto& [name, gradient] : gradients) {
    values["d" + name].assign(gradient.values.begin(), gradient.values.end());
    for (const formula::Wide size : gradient.sizes) {
      terms = plain.contains(name) ? terms : std::max(terms, size);
    }
  }
  values["terms"] = {static_cast<double>(terms)};
}

/// The values of a formula's output.
inline std::vector<double> values_of(const std::vector<formula::Number>& output) {
  std::vector<double> values;
  for (const formula::Number& number : output) {
    values.push_back(static_cast<double>(number.value));
  }
  return values;
}

/// The output alone.
inline std::vector<double> output_of(const formula::Formula& of, const Tensor& x, const NamedParameters& parameters,
                                     double eps, int64_t axis = 1) {
  const formula::Evaluation evaluation(of, x, parameters, eps, axis);
  return values_of(evaluation.output());
}

/// Output and gradients. `edge`: what the formula's branches have seen.
inline NormValues values_of(const formula::Formula& of, const Tensor& x, const Tensor& dy,
                            const NamedParameters& parameters, double eps, int64_t axis = 1,
                            formula::BranchEdge* edge = nullptr) {
  const formula::Evaluation evaluation(of, x, parameters, eps, axis);
  NormValues values{{"y", values_of(evaluation.output())}};
  insert_gradients(values, evaluation.gradients(dy), {"weight", "bias"});
  if (edge != nullptr) {
    *edge = evaluation.edge();
  }
  return values;
}

/// A convolution with the standardized weight in the place of its weight, with bias and gain where they are defined.
/// x is the weight in the formula, and so "dx" is the gradient of the convolution's input and "dweight" that of the
/// weight.
inline NormValues std_conv_values(const Tensor& x_in, const Tensor& dy_in, const Tensor& weight_in,
                                  const Tensor& bias_in, const Tensor& gain_in, const Conv2dOptions& options,
                                  std::optional<double> gamma, double eps) {
  formula::Numbers numbers;
  std::map<std::string, std::vector<formula::Number>> inputs;
  for (const auto& [name, from] : {std::pair("x", x_in), {"weight", weight_in}, {"bias", bias_in}, {"gain", gain_in}}) {
    for (const double value : from.defined() ? from.to_vector<double>() : std::vector<double>()) {
      inputs[name].push_back(numbers.input(value));
    }
  }
  formula::Arguments standardize{.sizes = weight_in.sizes(), .eps = eps, .x = inputs["weight"], .parameters = {}};
  if (gain_in.defined()) {
    standardize.parameters["gain"] = inputs["gain"];
  }
  const std::vector<formula::Number> u = formula::standardized_weight(gamma)(standardize);
  const std::vector<formula::Number>& x = inputs["x"];
  std::vector<formula::Number> y;
  const int64_t in_per_group = weight_in.size(1);
  const int64_t out_per_group = weight_in.size(0) / options.groups;
  const size_t fan_in = u.size() / static_cast<size_t>(weight_in.size(0));
  for (int64_t image = 0; image < x_in.size(0); ++image) {
    for (int64_t o = 0; o < weight_in.size(0); ++o) {
      for (int64_t h = 0; h < dy_in.size(2); ++h) {
        for (int64_t w = 0; w < dy_in.size(3); ++w) {
          formula::Number sum = bias_in.defined() ? inputs["bias"][static_cast<size_t>(o)] : formula::Number{};
          size_t k = static_cast<size_t>(o) * fan_in;
          for (int64_t c = 0; c < in_per_group; ++c) {
            for (int64_t kh = 0; kh < weight_in.size(2); ++kh) {
              for (int64_t kw = 0; kw < weight_in.size(3); ++kw, ++k) {
                const int64_t row = h * options.stride.h - options.padding.h + kh * options.dilation.h;
                const int64_t column = w * options.stride.w - options.padding.w + kw * options.dilation.w;
                if (row < 0 || row >= x_in.size(2) || column < 0 || column >= x_in.size(3)) {
                  continue;
                }
                const int64_t channel = o / out_per_group * in_per_group + c;
                sum = sum + x[static_cast<size_t>(
                                ((image * x_in.size(1) + channel) * x_in.size(2) + row) * x_in.size(3) + column)] *
                                u[k];
              }
            }
          }
          y.push_back(sum);
        }
      }
    }
  }
  NormValues values{{"y", values_of(y)}};
  const formula::Gradient all = numbers.gradient(y, dy_in.to_vector<double>(), /* by_output= */ false);
  std::map<std::string, formula::Gradient> gradients;
  for (const auto& [name, of] : inputs) {
    for (const formula::Number& input : of) {
      gradients[name].values.push_back(all.values[input.place]);
      gradients[name].sizes.push_back(all.sizes[input.place]);
    }
  }
  insert_gradients(values, gradients, {"bias", "gain"});
  return values;
}

}  // namespace norma::test
