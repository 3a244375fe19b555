#pragma once

#include "core/tensor.h"
#include "ops/norm/reference.h"

#include <cstdint>
#include <vector>

namespace norma::lab::audit {

/// What a norm and its backward pass give.
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

/// What a norm should give for its inputs as they are after rounding to their dtype, and the units of its errors.
class NormTruth {
 public:
  explicit NormTruth(const NormReferenceInputs& inputs);

  [[nodiscard]] Accuracy accuracy(const NormResults& results) const;
  [[nodiscard]] const NormReference& reference() const { return reference_; }

 private:
  using Wide = NormReference::Wide;

  NormReference reference_;
  bool has_bias_;
  std::vector<Wide> output_unit_;  ///< of each set
  std::vector<Wide> dx_unit_;      ///< of each set, for dx / rstd
  std::vector<Wide> weight_unit_;  ///< of each weight
};

}  // namespace norma::lab::audit
