#pragma once

#include "core/tensor.h"
#include "ops/norm/kernels.h"

#include <string_view>
#include <vector>

// The checks that every norm makes of its arguments, and the way from a spec and a tensor to plain numbers.

namespace norma::norm_detail {

using kernels::AffineShape;
using kernels::NormShape;
using kernels::Walk;

// --- checks. All throw Error. ---------------------------------------------------------------------------------------

/// x has a floating dtype and `low` to `high` axes.
void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high);
/// A parameter of a norm has the device of x, and its dtype, or float32 beside bfloat16 and float16.
void check_parameter(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x);
/// A parameter has sizes (C).
void check_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x);
/// A parameter has the sizes of x along some axes, or is undefined.
void check_optional(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x,
                    const Axes& axes = {1});
/// check_optional() of weight and bias.
void check_affine(std::string_view op, const Tensor& weight, const Tensor& bias, const Tensor& x,
                  const Axes& affine = {1});
/// Returns the spec with its axes sorted and not negative, if x can have it.
NormSpec checked_spec(std::string_view op, const Tensor& x, const NormSpec& spec);
/// True iff running_mean and running_var are defined, both of (C); false iff both are undefined.
bool check_running_statistics(std::string_view op, const Tensor& running_mean, const Tensor& running_var,
                              const Tensor& x);

Sizes sizes_along(const Tensor& x, const Axes& axes);

// --- layout ---------------------------------------------------------------------------------------------------------

/// The sizes of a tensor with one number per set: reduced axes have size 1.
Sizes sizes_of_sets(const Sizes& sizes, const NormSpec& spec);

/// One axis of the memory of a tensor that is being normalized. In a spec with groups, axis 1 is two of them: the
/// groups, and the channels of a group.
struct MemoryAxis {
  int64_t size;
  int64_t axis;      ///< of the tensor
  int64_t step = 1;  ///< how far along `axis` one index goes
  bool reduced = false;
  bool affine = false;        ///< the kernels' weights vary along it
  int64_t weight_stride = 0;  ///< in the caller's weight, row-major; 0 where the kernels' weights are repetitions
};

/// Reduces a spec and the strides of a tensor to plain numbers: the walk and its sizes. Adjacent axes with the same
/// role count as one. If the roles alternate more often than the walks know, the tensor has to be copied into an order
/// with all reduced axes last.
class NormLayout {
 public:
  /// `strides` must be dense. `affine`: there is a weight or bias.
  NormLayout(const Sizes& sizes, const Strides& strides, const NormSpec& spec, bool affine);

  [[nodiscard]] Walk walk() const { return walk_; }
  [[nodiscard]] const NormShape& shape() const { return shape_; }
  [[nodiscard]] const AffineShape& affine() const { return affine_; }

  /// x's elements as a dense tensor in the order of the walk: a view if they lie like that, else a copy.
  [[nodiscard]] Tensor in_order(const Tensor& x) const;
  /// x's elements as a view in the order of the walk, whatever the strides.
  [[nodiscard]] Tensor view_in_order(const Tensor& x) const;
  /// The place for a kernel's output: that view of x if it is dense, else an uninitialized tensor for copy_back().
  [[nodiscard]] Tensor writable_in_order(const Tensor& x) const;
  /// Copies to x what a kernel wrote to writable_in_order(x), unless that was x's own memory.
  void copy_back(const Tensor& in_order, const Tensor& x) const;
  /// A caller's weight or bias in the kernels' order.
  [[nodiscard]] Tensor weight_in_order(const Tensor& weight) const;
  /// The inverse for gradients: a tensor of `sizes` from the kernels' order; repeated weights are summed. It has the
  /// memory of `in_order`, which nobody else may use from then on, where that has the order already.
  [[nodiscard]] Tensor weight_gradient(const Tensor& in_order, const Sizes& sizes) const;
  /// Numbers of sets, moved from the order of the sets in memory to that of their axes (see NormStatistics).
  [[nodiscard]] Tensor per_set(const Tensor& in_order, const Sizes& sizes) const;
  /// The inverse of per_set(), as a dense tensor.
  [[nodiscard]] Tensor sets_in_order(const Tensor& per_set) const;

 private:
  void assign_roles();
  void assign_affine();
  void cut_rows();
  /// `x`, dense and with one number per set in row-major order, as a view in the order of the sets in memory.
  [[nodiscard]] Tensor view_of_sets(const Tensor& x) const;

  std::vector<MemoryAxis> axes_;  ///< outermost first, without those of size 1
  Walk walk_ = Walk::rows;
  NormShape shape_;
  AffineShape affine_;
  int64_t position_begin_[5] = {};  ///< of outer, reduce_outer, kept, reduce_inner in axes_
};

}  // namespace norma::norm_detail
