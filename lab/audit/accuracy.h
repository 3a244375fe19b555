#pragma once

#include "core/tensor.h"
#include "ops/norm/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
  int64_t wrong_outputs = 0;    ///< not finite where the truth is finite, or another value where it is not
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

/// Collects errors.
class Tally {
 public:
  void add(double value, long double truth, long double unit) {
    if (!std::isfinite(truth)) {
      const bool same = std::isnan(truth) ? std::isnan(value) : static_cast<long double>(value) == truth;
      wrong_ += same ? 0 : 1;
      return;
    }
    ++count_;
    if (!std::isfinite(value)) {
      ++wrong_;
      worst_ = sum_ = std::numeric_limits<double>::infinity();
      return;
    }
    const auto error = static_cast<double>(std::abs(static_cast<long double>(value) - truth) / unit);
    worst_ = std::max(worst_, error);
    sum_ += error;
  }
  void add(const Tally& other) {
    worst_ = std::max(worst_, other.worst_);
    sum_ += other.sum_;
    count_ += other.count_;
    wrong_ += other.wrong_;
  }
  [[nodiscard]] Errors errors() const { return {worst_, count_ > 0 ? sum_ / static_cast<double>(count_) : 0}; }
  [[nodiscard]] int64_t wrong() const { return wrong_; }

 private:
  double worst_ = 0;
  double sum_ = 0;
  int64_t count_ = 0;
  int64_t wrong_ = 0;
};

}  // namespace norma::lab::audit
