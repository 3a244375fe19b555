#pragma once

#include "core/tensor.h"
#include "nn/module.h"
#include "ops/map_norm/reference.h"
#include "ops/norm/reference.h"
#include "ops/norm/spec.h"

#include <functional>
#include <memory>
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

}  // namespace norma::lab::judge
