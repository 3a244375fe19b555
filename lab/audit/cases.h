#pragma once

#include "lab/audit/accuracy.h"
#include "lab/audit/composite.h"
#include "lab/audit/norms.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab::audit {

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
std::string why_not_taken(const Case& c, const Composite& composite);

/// The inputs of a norm, rounded to `dtype`, with random weight, bias and dy; the same in every call.
NormReferenceInputs make_inputs(const Case& c, const Norm& norm, DType dtype, bool quick);
/// The inputs of a composite, likewise; for `c` each map, or output channel of a weight, is a set.
CompositeInputs make_inputs(const Case& c, const Composite& composite, DType dtype);

}  // namespace norma::lab::audit
