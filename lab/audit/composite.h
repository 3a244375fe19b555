#pragma once

#include "lab/audit/accuracy.h"
#include "lab/audit/dual.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab::audit {

/// Numbers of a parameter: uniform in [low, low + 1/2).
struct CompositeParameter {
  enum class Length : uint8_t { one, channels, first_axis };
  Length length = Length::channels;
  double low = 0.5;
  bool is_bias = false;
};

/// The input and the parameters in row-major order, one of whose numbers is the variable.
struct CompositeArguments {
  const Sizes& sizes;
  const std::vector<Dual>& x;
  const std::vector<std::vector<Dual>>& parameters;
  double eps;
};

/// A norm that is more than one normalize(), with its definition in plain loops.
struct Composite {
  std::string name;
  Sizes sizes;                         ///< of the input
  std::optional<Sizes> one_each = {};  ///< an input with one element in each set
  std::string why_not_one_each = "";   ///< why there is none
  bool has_statistics = true;          ///< false: `statistics` makes no difference
  bool relative = false;               ///< outputs have the size of the input, so errors are relative to them
  double least_dx = 0;                 ///< the smallest unit of dx, for gradients that all but vanish
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
  Tensors gradients;  ///< of the parameters
};

/// The definition's output and gradients. Gradients are found by differentiating the loops for every number that goes
/// in, one after the other, so that nothing but the formula of the output has to be right.
class CompositeDefinition {
 public:
  CompositeDefinition(const Composite& composite, const CompositeInputs& inputs);
  /// Units as those of Accuracy says, but over the whole output, and for dx the root mean square over the elements of
  /// the sum of |dy * dy/dx|.
  [[nodiscard]] Accuracy accuracy(const CompositeResults& results) const;
  [[nodiscard]] const std::vector<long double>& output() const { return y_; }
  [[nodiscard]] const std::vector<long double>& dx() const { return gradients_[0].values; }

 private:
  struct Gradient {
    std::vector<long double> values;
    std::vector<long double> sizes;  ///< what the terms add up to without their signs
  };

  const Composite& composite_;
  std::vector<long double> y_;
  long double output_unit_ = 1;
  std::vector<Gradient> gradients_;  ///< of x, then of each parameter
};

}  // namespace norma::lab::audit
