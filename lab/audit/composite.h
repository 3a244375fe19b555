#pragma once

#include "lab/audit/accuracy.h"
#include "lab/audit/dual.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab::audit {

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
  Sizes sizes;                         ///< of the input
  std::optional<Sizes> one_each = {};  ///< an input with one element in each set
  std::string why_not_one_each = "";   ///< why there is no such input
  bool has_statistics = true;          ///< false: `statistics` makes no difference
  bool relative = false;               ///< outputs are as large as the input, so errors are relative to them
  double least_dx = 0;                 ///< the smallest unit of dx, for gradients that nearly vanish
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
