#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"
#include "ops/map_norm/norms.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The norms that are more than one normalize(), by their formulas: plain loops in the widest floating type (64 bits of
// mantissa on x86). The numbers of these loops remember how they were made, so that only the formula of the output has
// to be right; its derivatives follow. Tests and `norma audit` compare the kernels with this.

namespace norma::formula {

using Wide = long double;
class Numbers;

/// A number, and its place among those that depend on an input.
struct Number {
  Wide value = 0;
  Numbers* among = nullptr;  ///< nullptr: a constant
  size_t place = 0;
};

/// The difference of the two sides of maximum(), over all its calls.
struct BranchEdge {
  bool below = false;  ///< the second side was larger, at least once
  bool above = false;
  Wide nearest = std::numeric_limits<Wide>::infinity();  ///< to a change of sides
};

/// The gradient by some numbers.
struct Gradient {
  std::vector<Wide> values;
  std::vector<Wide> sizes;         ///< the sums of the absolute values of what the values are sums of
  std::vector<Wide> reached = {};  ///< with `by_output`: the sums of |dy| over the outputs that depend on the number
};

/// All numbers that depend on the inputs, in the order of their making.
class Numbers : NotCopied {
 public:
  /// A new input.
  Number input(Wide value) { return record(value, {}, 0); }
  /// f(a, b), with its derivatives by each. A constant has none.
  Number record(Wide value, const Number& a, Wide by_a, const Number& b = {}, Wide by_b = 0);

  /// The gradient of sum(dy · y) by the first `count` inputs after `first`. `by_output`: a size is the sum over the
  /// outputs of |dy · dy/dx|; else it is the sum over all ways from an output to the input, which is as quick as the
  /// gradient itself.
  [[nodiscard]] Gradient gradient(const std::vector<Number>& y, const std::vector<double>& dy, bool by_output) const;
  [[nodiscard]] size_t count() const { return nodes_.size(); }

  BranchEdge edge;

 private:
  struct Node {
    static constexpr size_t kNone = std::numeric_limits<size_t>::max();
    size_t from[2] = {kNone, kNone};
    Wide slope[2] = {0, 0};
  };
  struct Slope {
    Wide value = 0;
    Wide size = 0;
    bool reached = false;  ///< by an output; 0 times the slope of NaN would be NaN where nothing is
  };
  void sweep(std::vector<Slope>& slopes, size_t last) const;

  std::vector<Node> nodes_;
};

inline Number constant(Wide value) {
  return {.value = value};
}

/// f(x) with f'(x) = slope.
inline Number chain(const Number& x, Wide value, Wide slope) {
  return x.among == nullptr ? constant(value) : x.among->record(value, x, slope);
}
inline Number join(const Number& a, const Number& b, Wide value, Wide by_a, Wide by_b) {
  Numbers* const among = a.among != nullptr ? a.among : b.among;
  return among == nullptr ? constant(value) : among->record(value, a, by_a, b, by_b);
}

inline Number operator+(const Number& a, const Number& b) {
  return join(a, b, a.value + b.value, 1, 1);
}
inline Number operator-(const Number& a, const Number& b) {
  return join(a, b, a.value - b.value, 1, -1);
}
inline Number operator*(const Number& a, const Number& b) {
  return join(a, b, a.value * b.value, b.value, a.value);
}
inline Number operator/(const Number& a, const Number& b) {
  return a * chain(b, 1 / b.value, -1 / (b.value * b.value));
}
inline Number sqrt(const Number& x) {
  const Wide root = std::sqrt(x.value);
  return chain(x, root, 1 / (2 * root));
}
inline Number tanh(const Number& x) {
  const Wide cosine = std::cosh(x.value);
  return chain(x, std::tanh(x.value), 1 / (cosine * cosine));
}
inline Number erf(const Number& x) {
  constexpr Wide kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi_v<Wide>;
  return chain(x, std::erf(x.value), kTwoOverRootPi * std::exp(-x.value * x.value));
}
inline Number sigmoid(const Number& x) {
  const Wide s = 1 / (1 + std::exp(-x.value));
  return chain(x, s, s / (1 + std::exp(x.value)));
}
inline Number pow(const Number& x, Wide exponent) {
  return chain(x, std::pow(x.value, exponent), exponent * std::pow(x.value, exponent - 1));
}
/// The larger one; NaN if one is NaN.
Number maximum(const Number& a, const Number& b);

/// What a formula takes. x is (…, channels, …) in row-major order, with the channels along `axis`.
struct Arguments {
  Sizes sizes;  ///< of x
  int64_t axis = 1;
  double eps = 0;
  std::vector<Number> x;
  /// By name, with a number for each channel, or one. A weight that is not there is 1, a bias 0.
  std::map<std::string, std::vector<Number>> parameters;
};

/// The output for each element of x.
using Formula = std::function<std::vector<Number>(const Arguments& arguments)>;

Formula ghost_batch_norm(int64_t sub_batch);
/// In training, beside these running statistics.
Formula batch_renorm(const std::vector<double>& running_mean, const std::vector<double>& running_var, double r_max,
                     double d_max);
/// `running_var`, if it is not empty, is used in place of the batch's variance, as in evaluation.
Formula evo_norm_b0(const std::vector<double>& running_var = {});
Formula evo_norm_s0(int64_t groups);
Formula filter_response_norm();  ///< with the threshold "tau", if there is one
Formula global_response_norm();
Formula local_response_norm(int64_t size, const LocalResponseNormOptions& options = {});
Formula dynamic_tanh();
Formula dynamic_erf();
Formula seed_norm();
/// standardize_weight(): x is the weight; "gain", if there is one, has a number for each output channel.
Formula standardized_weight(std::optional<double> gamma = {});

/// A formula at one input.
class Evaluation : NotCopied {
 public:
  Evaluation(const Formula& formula, const Tensor& x, const std::vector<std::pair<std::string, Tensor>>& parameters,
             double eps, int64_t axis = 1);

  [[nodiscard]] const std::vector<Number>& output() const { return y_; }
  /// By the name of the parameter; "x" for the input. Sizes as in Numbers::gradient().
  [[nodiscard]] std::map<std::string, Gradient> gradients(const Tensor& dy, bool by_output = false) const;
  [[nodiscard]] const BranchEdge& edge() const { return numbers_.edge; }

 private:
  Numbers numbers_;
  std::vector<std::pair<std::string, size_t>> inputs_;  ///< names and counts, in the order of their numbers
  std::vector<Number> y_;
};

}  // namespace norma::formula
