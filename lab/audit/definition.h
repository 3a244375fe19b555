#pragma once

#include "core/tensor.h"
#include "lab/audit/set_index.h"
#include "ops/norm/spec.h"

#include <cstdint>
#include <vector>

namespace norma::lab::audit {

/// What goes into a norm and its backward pass.
struct NormInputs {
  NormSpec spec;
  Tensor x;
  Tensor weight;
  Tensor bias;  ///< undefined: the norm has none
  Tensor dy;
};

/// What comes out.
struct NormResults {
  Tensor y;
  Tensor dx;
  Tensor dweight;
  Tensor dbias;  ///< undefined like the bias
};

/// The errors of many numbers. Infinite where one should be finite and is not.
struct Errors {
  double worst = 0;
  double mean = 0;
};

/// How far results are from the truth, in these units:
///  - output: 1, or the root mean square of the true outputs of the set if that is above 1;
///  - dx: 1 / sqrt(var + eps) of the set, times the root mean square of dx in that unit if that is above 1;
///  - dweight, dbias: the sum of |dy|, or of |dy * xhat| if that is larger, over the elements with that weight.
struct Accuracy {
  Errors output;
  Errors dx;
  Errors dweight;
  Errors dbias;
  int64_t wrong_outputs = 0;    ///< NaN or infinite where the truth is not, or the other way round
  int64_t wrong_gradients = 0;  ///< the same in dx, dweight and dbias
};

/// The definition of a norm and of its gradients, as plain loops in the widest floating type there is (64 bits of
/// mantissa on x86), of the inputs as they are after rounding to their dtype.
class Definition {
 public:
  explicit Definition(const NormInputs& inputs);

  [[nodiscard]] Accuracy accuracy(const NormResults& results) const;
  /// The true values in row-major order.
  [[nodiscard]] std::vector<double> output() const;
  [[nodiscard]] std::vector<double> dx() const;

 private:
  using Wide = long double;

  void find_statistics();
  void find_gradients();
  [[nodiscard]] Wide centred(size_t element, size_t set) const { return (x_[element] - mean_[set]) - rest_[set]; }
  [[nodiscard]] Wide xhat(size_t element, size_t set) const;
  [[nodiscard]] Wide y(size_t element, size_t set, size_t weight) const;
  /// dx * sqrt(var + eps)
  [[nodiscard]] Wide scaled_dx(size_t element, size_t set, size_t weight) const;

  NormSpec spec_;
  SetIndex index_;
  bool has_bias_;
  std::vector<double> x_;
  std::vector<double> dy_;
  std::vector<double> weight_;
  std::vector<double> bias_;
  // Of each set.
  std::vector<Wide> mean_;  ///< 0 for Centring::none, as rest_
  std::vector<Wide> rest_;  ///< what mean_ has lost to rounding
  std::vector<Wide> rstd_;
  std::vector<Wide> mean_g_;       ///< of g = dy * weight
  std::vector<Wide> mean_g_xhat_;  ///< sum(g * xhat) / (n - correction)
  std::vector<Wide> output_unit_;
  std::vector<Wide> dx_unit_;  ///< of scaled_dx
  // Of each weight.
  std::vector<Wide> dweight_;
  std::vector<Wide> dbias_;
  std::vector<Wide> weight_unit_;
};

}  // namespace norma::lab::audit
