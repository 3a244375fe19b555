#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab::audit {

/// A norm as the audit calls it, through its public function.
struct Norm {
  std::string name;
  Sizes sizes;                    ///< of the input
  std::optional<Sizes> one_each;  ///< an input with one element in each set; none if that is an error
  bool has_bias = true;
  bool has_statistics = true;  ///< false: `statistics` makes no difference
  /// The spec for inputs of this rank. The caller sets its statistics and eps.
  std::function<NormSpec(int64_t rank)> spec;
  std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias, Statistics statistics, double eps)>
      apply;
};

const std::vector<Norm>& all_norms();
std::vector<std::string> norm_names();
/// Throws Error for an unknown name.
const Norm& norm_called(const std::string& name);

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

}  // namespace norma::lab::audit
