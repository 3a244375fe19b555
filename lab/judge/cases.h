#pragma once

#include "lab/judge/norms.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab::judge {

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

}  // namespace norma::lab::judge
