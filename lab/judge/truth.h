#pragma once

#include "core/tensor.h"
#include "lab/judge/norms.h"
#include "ops/norm/reference.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab::judge {

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
  // Of a formula, per element:
  std::vector<Wide> y_;
  std::vector<Wide> dx_;
  std::vector<Wide> output_unit_;  ///< per set; one for a formula
  std::vector<Wide> dx_unit_;      ///< likewise; in a set, for dx / rstd
  std::vector<OfParameter> parameters_;
};

}  // namespace norma::lab::judge
