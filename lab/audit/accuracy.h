#pragma once

#include "core/tensor.h"
#include "ops/norm/reference.h"

#include <cstdint>
#include <vector>

namespace norma::lab::audit {

/// The results of a norm and its backward pass.
struct NormResults {
  Tensor y;
  Tensor dx;
  Tensor dweight;
  Tensor dbias;  ///< undefined if the bias is
};

/// The errors of many numbers; infinite if one of them is not finite and should be.
struct Errors {
  double worst = 0;
  double mean = 0;
};

/// The errors of results against the truth, in these units:
///  - output: 1, or the root mean square of the set's true outputs if that is above 1;
///  - dx: 1 / sqrt(var + eps) of the set, times the root mean square of dx in that unit if that is above 1;
///  - dweight, dbias: the sum of |dy|, or of |dy * xhat| if that is larger, over the elements with that weight.
struct Accuracy {
  Errors output;
  Errors dx;
  Errors dweight;
  Errors dbias;
  int64_t wrong_outputs = 0;    ///< NaN or infinite but for the truth, or the other way round
  int64_t wrong_gradients = 0;  ///< the same in dx, dweight and dbias
};

/// The right results of a norm for inputs already rounded to their dtype, and the units of their errors.
class NormTruth {
 public:
  explicit NormTruth(const NormReferenceInputs& inputs);

  [[nodiscard]] Accuracy accuracy(const NormResults& results) const;
  [[nodiscard]] const NormReference& reference() const { return reference_; }

 private:
  using Wide = NormReference::Wide;

  NormReference reference_;
  bool has_bias_;
  std::vector<Wide> output_unit_;  ///< per set
  std::vector<Wide> dx_unit_;      ///< per set, for dx / rstd
  std::vector<Wide> weight_unit_;  ///< per weight
};

}  // namespace norma::lab::audit
