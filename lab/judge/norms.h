#pragma once

#include "core/tensor.h"
#include "nn/module.h"
#include "ops/map_norm/reference.h"
#include "ops/norm/reference.h"
#include "ops/norm/spec.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab::judge {

/// A parameter of a norm. On hard inputs it has numbers uniform in [low, low + width).
struct Parameter {
  enum class Length : uint8_t { affine, one, first_axis };  ///< affine: as many as the norm's axes for it say
  std::string name;
  double low = 0.5;
  double width = 0.5;
  Length length = Length::affine;
};

/// A norm with a definition in plain loops.
struct Norm {
  /// The spec of its layer (nn/norm/factory.h). Three names are of no layer there: layer (over all axes but the first),
  /// std_conv and scaled_std_conv (the standardized weight).
  std::string name;
  Sizes sizes;                                                        ///< of the input
  std::optional<Sizes> one_each = {};                                 ///< an input with one element in each set
  std::string why_not_one_each = "one element in a set is an error";  ///< why there is no such input
  bool has_statistics = true;                                         ///< false: `statistics` makes no difference
  std::vector<Parameter> parameters = {};
  // The definition is one of the two. The spec of one normalize(), for inputs of a rank; the caller sets its eps:
  std::function<NormSpec(int64_t rank)> spec = {};
  formula::Formula formula = {};
  double weight_offset = 0;  ///< what the layer adds to its weight
  bool relative = false;     ///< outputs of the formula are as large as the input, so errors are relative to them
  double least_dx = 0;       ///< the smallest unit of the formula's dx, for gradients that nearly vanish
  /// What computes a norm that is no layer.
  std::function<Tensor(const Tensor& x, const Tensors& parameters, Statistics statistics, double eps)> apply = {};
};

/// All of them, and group norm with any number of groups.
const std::vector<Norm>& all_norms();
/// Their names without groups and options.
std::vector<std::string> norm_names();
/// The norm of exactly this name; group:G for any G above 0; layer2d, rms2d and seednorm with the options `offset` and
/// `groups`. None for an unknown name.
std::optional<Norm> find_norm(const std::string& name);
/// Likewise; a name without groups and options means the one in all_norms(): "group" is group:4. Throws Error for an
/// unknown name.
Norm norm_called(const std::string& name);

/// The order in which an input lies in memory. A norm takes another walk for each.
enum class Layout : uint8_t {
  contiguous,
  channels_last,  ///< for rank 4
  transposed,     ///< for rank 2: the first axis is the inner one
};
std::string_view to_string(Layout layout);
/// The layouts to try for inputs of this rank.
std::vector<Layout> layouts_of(int64_t rank);
/// A copy of x in this layout.
Tensor in_layout(const Tensor& x, Layout layout);

/// What a norm gets, rounded to a dtype.
struct Inputs {
  Tensor x;
  nn::NamedTensors parameters;
  Tensor dy;
  double eps = 0;

  /// Undefined if there is none.
  [[nodiscard]] Tensor parameter(std::string_view name) const;
  /// The parameters as the definition takes them: with `offset` added to the weight, in float64.
  [[nodiscard]] nn::NamedTensors with_offset(double offset) const;
};

/// What a norm makes of it.
struct Results {
  Tensor y;
  Tensor dx;
  Tensors gradients;  ///< per parameter
};

/// Runs forward and backward on inputs in this layout.
Results apply(const Norm& norm, const Inputs& inputs, Statistics statistics, Layout layout);

/// The random numbers and the place of element i of an input.
struct Draw {
  double normal = 0;   ///< N(0, 1)
  double uniform = 0;  ///< in [0, 1)
  size_t element = 0;
  size_t numel = 0;
  size_t set = 0;
};

/// One kind of input.
struct Case {
  std::string name;
  std::string column;       ///< the column of the table that it counts in
  std::string description;  ///< one line
  /// Numbers that a dtype must hold: around `offset`, `deviation` apart, none larger than `largest`.
  double offset = 0;
  double deviation = 1;
  double largest = 10;
  double eps = 1e-5;
  std::function<double(const Draw&)> value;
  /// For a published case: sizes of the input, and those with --quick. Its norm is layer norm over all axes but the
  /// first, with weight 1 and bias 0, and dy is 1.
  Sizes published = {};
  Sizes published_quick = {};
  bool one_element = false;  ///< each set has one element
  bool only_float32 = false;

  [[nodiscard]] bool is_published() const { return !published.empty(); }
};

const std::vector<Case>& all_cases();
std::vector<std::string> case_names();
/// Throws Error for an unknown name.
const Case& case_called(std::string_view name);

/// The reason why a dtype cannot hold the input, "float16 ends at 65504"; "" if it can.
std::string why_not_held(const Case& c, DType dtype);
/// The reason why the norm has no such input; "" if it has.
std::string why_not_taken(const Case& c, const Norm& norm);

/// The inputs of a norm, rounded to `dtype`, with random parameters and dy; the same in every call. For a norm by a
/// formula each map, or output channel of a weight, is a set of the case.
Inputs make_inputs(const Case& c, const Norm& norm, DType dtype, bool quick);

/// The errors of many numbers; infinite if one of them is not finite and should be.
struct Errors {
  double worst = 0;
  double mean = 0;
  int64_t numbers = 0;  ///< 0: the norm has no such result
};

/// The errors of results against the truth, in these units:
///  - output: 1, or the root mean square of the set's true outputs if that is above 1;
///  - dx: 1 / sqrt(var + eps) of the set, times the root mean square of dx in that unit if that is above 1;
///  - dweight, dbias: the sum of |dy|, or of |dy * xhat| if that is larger, over the elements with that weight.
/// A formula's units are taken over the whole tensor: outputs of relative norms count in their root mean square, dx
/// counts in that of the sum of |dy * dy/dx|. dweight is the error of every parameter but the bias.
struct Accuracy {
  Errors output;
  Errors dx;
  Errors dweight;
  Errors dbias;
  int64_t wrong_outputs = 0;    ///< not finite where the truth is finite, or another value where it is not
  int64_t wrong_gradients = 0;  ///< the same in dx, dweight and dbias
};

/// The distance of a dtype's numbers between 1 and 2, the unit in the last place of what is about 1. Every judge of a
/// norm says its errors in such steps.
double step_of(DType dtype);

/// The worst error of each result in steps: "output", "dx", "dweight", "dbias". Infinite where a number is not finite
/// and should be, or the other way round.
std::map<std::string, double> worst_in_steps(const Accuracy& accuracy, DType dtype);

/// What NormReference takes, for a norm that is one normalize().
NormReferenceInputs reference_inputs(const Norm& norm, const Inputs& inputs);

/// The right results of a norm for inputs already rounded to their dtype, and the units of their errors.
class Truth {
 public:
  Truth(const Norm& norm, const Inputs& inputs);

  [[nodiscard]] Accuracy accuracy(const Results& results) const;
  /// The definition of a norm that is one normalize().
  [[nodiscard]] const NormReference& reference() const { return *reference_; }

 private:
  using Wide = long double;
  /// A parameter's gradient.
  struct OfParameter {
    bool is_bias = false;
    std::vector<Wide> values;
    std::vector<Wide> units;
  };

  void take_reference(const Norm& norm, const Inputs& inputs);
  void take_formula(const Norm& norm, const Inputs& inputs);
  template <class Visit>
  void visit_block(int64_t block, const Visit& visit) const;

  std::optional<NormReference> reference_;
  // A formula has these numbers, one for each element:
  std::vector<Wide> y_;
  std::vector<Wide> dx_;
  std::vector<Wide> output_unit_;  ///< per set; one for a formula
  std::vector<Wide> dx_unit_;      ///< likewise; in a set, for dx / rstd
  std::vector<OfParameter> parameters_;
};

}  // namespace norma::lab::judge
