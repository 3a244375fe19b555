#include "ops/norm/layout.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/reduce/reduce.h"

#include <algorithm>

namespace norma::norm_detail {

// --- checks ---------------------------------------------------------------------------------------------------------

namespace {

void check_norm_dtype(std::string_view op, const Tensor& x) {
  check_defined(op, "input", x);
  check(is_floating(x.dtype()), op, "input: expected dtype float32, float64, bfloat16 or float16, got {}",
        to_string(x.dtype()));
}

Axes checked_axes(std::string_view op, std::string_view argument, const Axes& axes, int64_t rank) {
  Axes result;
  for (const int64_t axis : axes) {
    check(axis >= -rank && axis < rank, op, "{}: expected axes in [{}, {}), got {}", argument, -rank, rank, axes);
    const int64_t positive = axis < 0 ? axis + rank : axis;
    check(!result.contains(positive), op, "{}: expected each axis once, got {}", argument, axes);
    result.push_back(positive);
  }
  result.sort();
  return result;
}

int64_t elements_of_a_set(const Tensor& x, const NormSpec& spec) {
  int64_t count = 1;
  for (const int64_t axis : spec.reduce) {
    count *= x.size(axis);
  }
  return count / spec.groups;
}

}  // namespace

void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high) {
  check_norm_dtype(op, x);
  check(x.rank() >= low && x.rank() <= high, op, "input: expected rank {} to {}, got rank {} (sizes {})", low, high,
        x.rank(), x.sizes());
}

void check_parameter(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x) {
  if (parameter.dtype() != compute_dtype(x.dtype())) {
    check_dtype(op, argument, parameter, x.dtype());
  }
  check_device(op, argument, parameter, x.device());
}

void check_per_channel(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x) {
  check_sizes(op, argument, parameter, {x.size(1)});
  check_parameter(op, argument, parameter, x);
}

bool check_running_statistics(std::string_view op, const Tensor& running_mean, const Tensor& running_var,
                              const Tensor& x) {
  if (!running_mean.defined() && !running_var.defined()) {
    return false;
  }
  check_per_channel(op, "running_mean", running_mean, x);
  check_per_channel(op, "running_var", running_var, x);
  return true;
}

Sizes sizes_along(const Tensor& x, const Axes& axes) {
  Sizes sizes;
  for (const int64_t axis : axes) {
    sizes.push_back(x.size(axis));
  }
  return sizes;
}

NormSpec checked_spec(std::string_view op, const Tensor& x, const NormSpec& spec) {
  check_norm_dtype(op, x);
  check(spec.eps >= 0, op, "eps: expected a value >= 0, got {}", spec.eps);
  check(!spec.reduce.empty(), op, "reduce: expected at least 1 axis, got []");
  NormSpec result = spec;
  result.reduce = checked_axes(op, "reduce", spec.reduce, x.rank());
  result.affine = checked_axes(op, "affine", spec.affine, x.rank());
  check(spec.groups >= 1, op, "groups: expected at least 1, got {}", spec.groups);
  if (spec.groups > 1) {
    check(result.reduce.contains(1), op, "reduce: expected axis 1 among the axes with groups > 1, got {}", spec.reduce);
    check(x.size(1) % spec.groups == 0, op,
          "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", x.size(1), spec.groups);
  }
  check(spec.correction >= 0, op, "correction: expected a value >= 0, got {}", spec.correction);
  if (spec.correction > 0) {
    check(spec.centring != Centring::none, op, "correction: expected 0 for a root mean square, got {}",
          spec.correction);
    const int64_t count = elements_of_a_set(x, result);
    check(x.numel() == 0 || count > spec.correction, op,
          "input: expected more than {} values in each set with correction {}, got {} (sizes {})", spec.correction,
          spec.correction, count, x.sizes());
  }
  return result;
}

void check_optional(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x,
                    const Axes& axes) {
  if (parameter.defined()) {
    check_sizes(op, argument, parameter, sizes_along(x, axes));
    check_parameter(op, argument, parameter, x);
  }
}

void check_affine(std::string_view op, const Tensor& weight, const Tensor& bias, const Tensor& x, const Axes& affine) {
  check_optional(op, "weight", weight, x, affine);
  check_optional(op, "bias", bias, x, affine);
}

// --- layout ---------------------------------------------------------------------------------------------------------

namespace {

/// Shorter runs with one weight get a weight for each element instead: the inner loop must not be short.
constexpr int64_t kShortRun = 16;
/// The same limit where weights vary from run to run, both along reduce_outer and along kept.
constexpr int64_t kShortestWeightedRun = 32;
/// Shorter runs are walked as columns.
constexpr int64_t kLongRun = 64;

int64_t product(std::span<const MemoryAxis> axes) {
  int64_t result = 1;
  for (const MemoryAxis& axis : axes) {
    result *= axis.size;
  }
  return result;
}

bool any_affine(std::span<const MemoryAxis> axes) {
  return std::any_of(axes.begin(), axes.end(), [](const MemoryAxis& axis) { return axis.affine; });
}

void make_affine(std::span<MemoryAxis> axes) {
  for (MemoryAxis& axis : axes) {
    axis.affine = true;  // its weight_stride stays 0 if it was not
  }
}

std::span<MemoryAxis> from_first_affine(std::span<MemoryAxis> axes) {
  const auto first = std::find_if(axes.begin(), axes.end(), [](const MemoryAxis& axis) { return axis.affine; });
  return axes.subspan(static_cast<size_t>(first - axes.begin()));
}

Walk walk_of(const NormShape& shape, const AffineShape& affine) {
  if (shape.set_is_one_run()) {
    return affine.present && affine.segment == 1 ? Walk::rows : Walk::runs;
  }
  const bool by_run = affine.present && affine.reduce_outer > 1 && affine.kept > 1;
  const int64_t long_run = by_run ? kShortestWeightedRun : kLongRun;
  return affine.inner == 1 && shape.reduce_inner >= long_run ? Walk::runs : Walk::columns;
}

/// x's storage with other sizes and strides, for kernels and copies: off the tape, and writable where x is.
Tensor with_strides(const Tensor& x, const Sizes& sizes, const Strides& strides) {
  return alias(x, sizes, strides, x.offset());
}

}  // namespace

Sizes sizes_of_sets(const Sizes& sizes, const NormSpec& spec) {
  Sizes result = sizes;
  for (const int64_t axis : spec.reduce) {
    result[axis] = spec.groups > 1 && axis == 1 ? spec.groups : 1;
  }
  return result;
}

NormLayout::NormLayout(const Sizes& sizes, const Strides& strides, const NormSpec& spec, bool affine) {
  // Row-major strides of the caller's weight.
  Strides weight_strides = Strides::filled(sizes.size(), 0);
  int64_t weight_stride = 1;
  for (int64_t i = spec.affine.size() - 1; i >= 0; --i) {
    weight_strides[spec.affine[i]] = weight_stride;
    weight_stride *= sizes[spec.affine[i]];
  }
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    MemoryAxis whole{.size = sizes[axis],
                     .axis = axis,
                     .reduced = spec.reduce.contains(axis),
                     .affine = affine && spec.affine.contains(axis),
                     .weight_stride = weight_strides[axis]};
    if (spec.groups > 1 && axis == 1) {
      MemoryAxis group = whole;
      group.size = spec.groups;
      group.step = whole.size / spec.groups;
      group.reduced = false;
      group.weight_stride *= group.step;
      axes_.push_back(group);
      whole.size = group.step;
    }
    axes_.push_back(whole);
  }
  std::erase_if(axes_, [](const MemoryAxis& axis) { return axis.size == 1; });
  std::stable_sort(axes_.begin(), axes_.end(), [&](const MemoryAxis& a, const MemoryAxis& b) {
    return strides[a.axis] * a.step > strides[b.axis] * b.step;
  });
  assign_roles();
  affine_.present = affine;
  affine_.segment = shape_.reduce_inner;
  if (affine) {
    assign_affine();
  }
  walk_ = walk_of(shape_, affine_);
}

void NormLayout::assign_roles() {
  int64_t changes = 0;
  for (size_t i = 1; i < axes_.size(); ++i) {
    changes += axes_[i].reduced != axes_[i - 1].reduced ? 1 : 0;
  }
  // The walks know at most: kept, reduced, kept, reduced.
  if (changes > 3 || (changes == 3 && axes_.front().reduced)) {
    std::stable_partition(axes_.begin(), axes_.end(), [](const MemoryAxis& axis) { return !axis.reduced; });
  }
  // From the innermost axis outwards.
  const auto begin_of_run = [&](int64_t end, bool reduced) {
    while (end > 0 && axes_[static_cast<size_t>(end - 1)].reduced == reduced) {
      --end;
    }
    return end;
  };
  const auto rank = static_cast<int64_t>(axes_.size());
  position_begin_[4] = rank;
  position_begin_[3] = begin_of_run(rank, true);
  position_begin_[2] = begin_of_run(position_begin_[3], false);
  position_begin_[1] = begin_of_run(position_begin_[2], true);
  position_begin_[0] = begin_of_run(position_begin_[1], false);
  if (position_begin_[1] == position_begin_[2] && position_begin_[3] < rank) {  // kept, reduced: one run for each set
    position_begin_[1] = position_begin_[2] = position_begin_[3];
  }
  const auto extent = [&](int64_t position) {
    return product(
        std::span(axes_).subspan(static_cast<size_t>(position_begin_[position]),
                                 static_cast<size_t>(position_begin_[position + 1] - position_begin_[position])));
  };
  shape_ = {.outer = extent(0), .reduce_outer = extent(1), .kept = extent(2), .reduce_inner = extent(3)};
}

void NormLayout::cut_rows() {
  // If weights vary along the innermost axes of a row alone, its parts share them (group norm of one group in
  // channels_last): the row becomes several runs.
  const auto begin = axes_.begin() + position_begin_[3];
  auto first_affine = axes_.end();
  while (first_affine != begin && (first_affine - 1)->affine) {
    --first_affine;
  }
  const bool apart = std::none_of(begin, first_affine, [](const MemoryAxis& axis) { return axis.affine; });
  if (first_affine == begin || first_affine == axes_.end() || !apart) {
    return;
  }
  position_begin_[1] = position_begin_[3];
  position_begin_[2] = position_begin_[3] = first_affine - axes_.begin();
  shape_.reduce_outer = product({begin, first_affine});
  shape_.reduce_inner = product({first_affine, axes_.end()});
}

void NormLayout::assign_affine() {
  if (shape_.set_is_one_run()) {
    cut_rows();
  }
  const auto axes_of = [&](int64_t position) {
    return std::span(axes_).subspan(static_cast<size_t>(position_begin_[position]),
                                    static_cast<size_t>(position_begin_[position + 1] - position_begin_[position]));
  };
  const std::span<MemoryAxis> outer = axes_of(0);
  const std::span<MemoryAxis> reduce_outer = axes_of(1);
  const std::span<MemoryAxis> kept = axes_of(2);
  const std::span<MemoryAxis> reduce_inner = axes_of(3);

  // Outer axes may begin with some without weights, which are repeated over them.
  const std::span<MemoryAxis> period = from_first_affine(outer);
  make_affine(period);

  if (any_affine(kept)) {
    make_affine(kept);
  }
  if (shape_.set_is_one_run()) {
    // Only innermost axes may be without weights: a segment of the run.
    auto end = reduce_inner.end();
    while (end != reduce_inner.begin() && !(end - 1)->affine) {
      --end;
    }
    const auto affine_count = static_cast<size_t>(end - reduce_inner.begin());
    make_affine(reduce_inner.first(affine_count));
    if (affine_count > 0 && product(reduce_inner.subspan(affine_count)) < kShortRun) {
      make_affine(reduce_inner);
    }
  } else {
    if (any_affine(reduce_inner)) {
      make_affine(reduce_inner);
    }
    if (any_affine(reduce_outer) &&
        (any_affine(kept) || any_affine(reduce_inner) || shape_.kept * shape_.reduce_inner < kShortRun)) {
      make_affine(kept);
      if (any_affine(reduce_inner) || shape_.reduce_inner < kShortestWeightedRun) {
        make_affine(reduce_inner);
      }
    }
  }
  const bool across = any_affine(kept) || any_affine(reduce_inner);
  const std::span<MemoryAxis> repeated = across ? from_first_affine(reduce_outer) : reduce_outer;
  if (any_affine(repeated)) {
    make_affine(repeated);
  }
  affine_.outer_period = product(period);
  affine_.reduce_outer = any_affine(repeated) ? product(repeated) : 1;
  affine_.kept = any_affine(kept) ? shape_.kept : 1;
  affine_.inner = 1;
  affine_.segment = 1;
  for (const MemoryAxis& axis : reduce_inner) {
    (axis.affine ? affine_.inner : affine_.segment) *= axis.size;
  }
}

Tensor NormLayout::view_in_order(const Tensor& x) const {
  Sizes sizes;
  Strides strides;
  for (const MemoryAxis& axis : axes_) {
    sizes.push_back(axis.size);
    strides.push_back(x.stride(axis.axis) * axis.step);
  }
  return with_strides(x, sizes, strides);
}

Tensor NormLayout::in_order(const Tensor& x) const {
  return contiguous_copy(view_in_order(x));
}

Tensor NormLayout::writable_in_order(const Tensor& x) const {
  const Tensor view = view_in_order(x);
  return view.is_contiguous() ? view : empty(view.sizes(), {.dtype = x.dtype(), .device = x.device()});
}

void NormLayout::copy_back(const Tensor& in_order, const Tensor& x) const {
  if (in_order.storage() != x.storage()) {
    copy_into(in_order, view_in_order(x));
  }
}

Tensor NormLayout::weight_in_order(const Tensor& weight) const {
  Sizes sizes;
  Strides strides;
  for (const MemoryAxis& axis : axes_) {
    if (axis.affine) {
      sizes.push_back(axis.size);
      strides.push_back(axis.weight_stride);
    }
  }
  return contiguous_copy(with_strides(contiguous_copy(weight), sizes, strides));
}

Tensor NormLayout::weight_gradient(const Tensor& in_order, const Sizes& sizes) const {
  Sizes full;
  Axes repeated;
  Sizes kept;
  Strides strides;
  for (const MemoryAxis& axis : axes_) {
    if (!axis.affine) {
      continue;
    }
    if (axis.weight_stride == 0) {
      repeated.push_back(full.size());
    } else {
      kept.push_back(axis.size);
      strides.push_back(axis.weight_stride);
    }
    full.push_back(axis.size);
  }
  if (repeated.empty() && same_places(kept, strides, contiguous_strides(kept))) {
    return Tensor(in_order.storage(), sizes, contiguous_strides(sizes), in_order.offset(), in_order.dtype());
  }
  const NoGradGuard guard;
  Tensor gradient = with_strides(in_order, full, contiguous_strides(full));
  if (!repeated.empty()) {
    gradient = sum(gradient, repeated);
  }
  Tensor result = empty(sizes, {.dtype = in_order.dtype(), .device = in_order.device()});
  copy_into(gradient, with_strides(result, kept, strides));
  return result;
}

Tensor NormLayout::view_of_sets(const Tensor& x) const {
  const Strides row_major = contiguous_strides(x.sizes());
  Sizes order;
  Strides strides;
  for (const MemoryAxis& axis : axes_) {
    if (!axis.reduced) {
      order.push_back(axis.size);
      strides.push_back(row_major[axis.axis]);
    }
  }
  return with_strides(x, order, strides);
}

Tensor NormLayout::per_set(const Tensor& in_order, const Sizes& sizes) const {
  const Tensor result = empty(sizes, {.dtype = in_order.dtype(), .device = in_order.device()});
  const Tensor view = view_of_sets(result);
  copy_into(with_strides(in_order, view.sizes(), contiguous_strides(view.sizes())), view);
  return result;
}

Tensor NormLayout::sets_in_order(const Tensor& per_set) const {
  return contiguous_copy(view_of_sets(per_set));
}

}  // namespace norma::norm_detail
