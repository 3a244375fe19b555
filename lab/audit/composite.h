#pragma once

#include "lab/audit/accuracy.h"

#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab::audit {

/// A number and its derivative by one variable, in the widest floating type. A number that does not depend on the
/// variable has no derivative at all: a derivative of 0 times NaN would be NaN.
struct Dual {
  long double value = 0;
  long double slope = 0;
  bool depends = false;
};

/// f(x) with f'(x) = slope.
inline Dual chain(const Dual& x, long double value, long double slope) {
  return {value, x.depends ? slope * x.slope : 0, x.depends};
}
inline Dual operator+(const Dual& a, const Dual& b) {
  return {a.value + b.value, a.slope + b.slope, a.depends || b.depends};
}
inline Dual operator-(const Dual& a, const Dual& b) {
  return {a.value - b.value, a.slope - b.slope, a.depends || b.depends};
}
inline Dual operator*(const Dual& a, const Dual& b) {
  const long double by_a = a.depends ? a.slope * b.value : 0;
  const long double by_b = b.depends ? b.slope * a.value : 0;
  return {a.value * b.value, by_a + by_b, a.depends || b.depends};
}
inline Dual inverse(const Dual& x) {
  return chain(x, 1 / x.value, -1 / (x.value * x.value));
}
inline Dual operator/(const Dual& a, const Dual& b) {
  return a * inverse(b);
}
inline Dual sqrt(const Dual& x) {
  const long double root = std::sqrt(x.value);
  return chain(x, root, 1 / (2 * root));
}
inline Dual tanh(const Dual& x) {
  const long double cosine = std::cosh(x.value);
  return chain(x, std::tanh(x.value), 1 / (cosine * cosine));
}
inline Dual erf(const Dual& x) {
  constexpr long double kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi_v<long double>;
  return chain(x, std::erf(x.value), kTwoOverRootPi * std::exp(-x.value * x.value));
}
inline Dual sigmoid(const Dual& x) {
  const long double s = 1 / (1 + std::exp(-x.value));
  return chain(x, s, s / (1 + std::exp(x.value)));
}
inline Dual pow(const Dual& x, long double exponent) {
  return chain(x, std::pow(x.value, exponent), exponent * std::pow(x.value, exponent - 1));
}
/// The larger one; NaN if one is NaN.
inline Dual maximum(const Dual& a, const Dual& b) {
  return std::isnan(a.value) || a.value >= b.value ? a : b;
}

/// A parameter with numbers uniform in [low, low + 1/2).
struct CompositeParameter {
  enum class Length : uint8_t { one, channels, first_axis };
  Length length = Length::channels;
  double low = 0.5;
  bool is_bias = false;
};

/// The input and the parameters in row-major order. One of their numbers is the variable.
struct CompositeArguments {
  const Sizes& sizes;
  const std::vector<Dual>& x;
  const std::vector<std::vector<Dual>>& parameters;
  double eps;
};

/// A norm made of more than one normalize(), and its definition in plain loops.
struct Composite {
  std::string name;
  Sizes sizes = {5, 6, 4, 3};  ///< of the input: small and odd, since the definition runs for every number of it
  std::optional<Sizes> one_each = {};                                 ///< an input with one element in each set
  std::string why_not_one_each = "one element in a set is an error";  ///< why there is no such input
  bool has_statistics = true;                                         ///< false: `statistics` makes no difference
  bool relative = false;  ///< outputs are as large as the input, so errors are relative to them
  double least_dx = 0;    ///< the smallest unit of dx, for gradients that nearly vanish
  std::vector<CompositeParameter> parameters = {};
  std::function<Tensor(const Tensor& x, const Tensors& parameters, Statistics statistics, double eps)> apply;
  std::function<std::vector<Dual>(const CompositeArguments& arguments)> define;

  [[nodiscard]] bool has_bias() const;
};

const std::vector<Composite>& all_composites();
/// nullptr for an unknown name.
const Composite* composite_called(const std::string& name);

struct CompositeInputs {
  Tensor x;
  Tensors parameters;
  Tensor dy;
  double eps = 0;
};

struct CompositeResults {
  Tensor y;
  Tensor dx;
  Tensors gradients;  ///< per parameter
};

/// The definition's output and gradients. Gradients come from differentiating the loops by each input number, one after
/// the other, so that only the formula of the output has to be right.
class CompositeDefinition {
 public:
  CompositeDefinition(const Composite& composite, const CompositeInputs& inputs);
  /// Units as in Accuracy, but over the whole output; for dx the unit is the root mean square over the elements of the
  /// sum of |dy * dy/dx|.
  [[nodiscard]] Accuracy accuracy(const CompositeResults& results) const;
  [[nodiscard]] const std::vector<long double>& output() const { return y_; }
  [[nodiscard]] const std::vector<long double>& dx() const { return gradients_[0].values; }

 private:
  struct Gradient {
    std::vector<long double> values;
    std::vector<long double> sizes;  ///< the sums of the terms' absolute values
  };

  const Composite& composite_;
  std::vector<long double> y_;
  long double output_unit_ = 1;
  std::vector<Gradient> gradients_;  ///< of x, then of each parameter
};

}  // namespace norma::lab::audit
