#include "ops/shape/view.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <optional>

namespace norma {
namespace {

/// `sizes` with its -1 replaced by the size that x's elements leave.
Sizes infer_sizes(std::string_view op, const Tensor& x, const Sizes& sizes) {
  Sizes result = sizes;
  int64_t unknown = -1;
  int64_t known = 1;
  bool empty = false;
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] == -1) {
      check(unknown < 0, op, "sizes: expected at most one -1, got {}", sizes);
      unknown = axis;
    } else {
      check(sizes[axis] >= 0, op, "sizes: expected sizes of at least 0 (or one -1), got {}", sizes);
      known = checked_mul(op, "sizes", known, std::max<int64_t>(sizes[axis], 1));
      empty = empty || sizes[axis] == 0;
    }
  }
  known = empty ? 0 : known;
  if (unknown >= 0) {
    check(known != 0, op, "sizes: -1 could be anything in {}", sizes);
    result[unknown] = x.numel() / known;
    known *= result[unknown];
  }
  check(known == x.numel(), op, "sizes: expected {} elements, as in {}, got {}", x.numel(), x.sizes(), sizes);
  return result;
}

/// The strides that show the elements of (sizes, strides) as `target`, in the same order; none if there are none.
///
/// From inside outwards, it gathers old axes into a chunk as long as they are one run in memory. Each chunk has to be
/// cut exactly into new axes. Axes of size 1 go with the chunk inside them.
std::optional<Strides> view_strides(const Sizes& sizes, const Strides& strides, const Sizes& target) {
  if (sizes == target) {
    return strides;
  }
  if (sizes.numel() == 0 || sizes.empty()) {
    return contiguous_strides(target);
  }
  Strides result = Strides::filled(target.size(), 0);
  int64_t next = target.size() - 1;
  int64_t chunk_stride = strides.back();
  int64_t chunk = 1;
  for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
    chunk *= sizes[axis];
    const bool chunk_goes_on = axis > 0 && (sizes[axis - 1] == 1 || strides[axis - 1] == chunk * chunk_stride);
    if (chunk_goes_on) {
      continue;
    }
    int64_t covered = 1;
    while (next >= 0 && (covered < chunk || target[next] == 1)) {
      result[next] = covered * chunk_stride;
      covered *= target[next];
      --next;
    }
    if (covered != chunk) {
      return std::nullopt;
    }
    if (axis > 0) {
      chunk_stride = strides[axis - 1];
      chunk = 1;
    }
  }
  return result;
}

/// A gradient in the memory format of its tensor. Only a view of a channels_last tensor can lose it.
Tensor in_format(const Tensor& gradient, MemoryFormat format) {
  const bool has_lost_it = format == MemoryFormat::channels_last && gradient.suggest_memory_format() != format;
  return has_lost_it ? to(gradient, format) : gradient;
}

/// Records a view y of x, whose gradient is f(dy) in the format of x.
template <class F>
Tensor recorded(const Op& op, const Tensor& x, const Tensor& y, F&& f) {
  return op.record({x}, y, {},
                   [f = std::forward<F>(f), format = x.suggest_memory_format()](
                       const Tensor& dy, const BackwardContext&) { return Tensors{in_format(f(dy), format)}; });
}

Tensor recorded_view(const Tensor& x, const Sizes& sizes, const Strides& strides) {
  return recorded(Op("view"), x, alias(x, sizes, strides, x.offset()),
                  [from = x.sizes()](const Tensor& dy) { return reshape(dy, from); });
}

/// The part of one axis that a slice shows.
struct Part {
  int64_t axis;
  int64_t start;
  int64_t length;
  int64_t step;
};

Tensor alias_of_part(const Tensor& x, const Part& part) {
  Sizes sizes = x.sizes();
  Strides strides = x.strides();
  sizes[part.axis] = part.length;
  // No step leads past the axis: a larger one shows a single element, whose stride has to fit all the same.
  strides[part.axis] *= std::min(part.step, std::max<int64_t>(x.size(part.axis), 1));
  // An empty part may start after the last element; it keeps x's offset.
  const int64_t skipped = sizes.numel() == 0 ? 0 : part.start * x.strides()[part.axis];
  return alias(x, sizes, strides, x.offset() + skipped);
}

Tensor recorded_part(const Tensor& x, const Part& part);

/// The gradient of a slice: dy in the part, zero elsewhere.
Tensor slice_backward(const Tensor& dy, const Part& part, const Sizes& sizes, MemoryFormat format) {
  const Op op("slice_backward");
  const Tensor dx = zeros(sizes, {.dtype = dy.dtype(), .device = dy.device(), .format = format});
  copy_into(dy, alias_of_part(dx, part));
  return op.record({dy}, dx, {},
                   [part](const Tensor& ddx, const BackwardContext&) { return Tensors{recorded_part(ddx, part)}; });
}

Tensor recorded_part(const Tensor& x, const Part& part) {
  Op op("slice");
  op.describe({{"axis", part.axis}, {"start", part.start}, {"length", part.length}, {"step", part.step}});
  return op.record(
      {x}, alias_of_part(x, part), {},
      [part, sizes = x.sizes(), format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
        return Tensors{slice_backward(dy, part, sizes, format)};
      });
}

Tensor without_axis(const Tensor& x, int64_t axis);

Tensor with_axis(const Tensor& x, int64_t axis) {
  Sizes sizes = x.sizes();
  Strides strides = x.strides();
  // The stride that the axis would have as one more outer axis of the axes inside it.
  strides.insert(axis, axis < x.rank() ? sizes[axis] * strides[axis] : 1);
  sizes.insert(axis, 1);
  Op op("unsqueeze");
  op.describe({{"axis", axis}});
  return recorded(op, x, alias(x, sizes, strides, x.offset()),
                  [axis](const Tensor& dy) { return without_axis(dy, axis); });
}

/// Drops an axis of size 1.
Tensor without_axis(const Tensor& x, int64_t axis) {
  Op op("squeeze");
  op.describe({{"axis", axis}});
  return recorded(op, x, alias(x, x.sizes().without(axis), x.strides().without(axis), x.offset()),
                  [axis](const Tensor& dy) { return with_axis(dy, axis); });
}

}  // namespace

Tensor view(const Tensor& x, const Sizes& sizes) {
  check_defined("view", "x", x);
  const Sizes target = infer_sizes("view", x, sizes);
  const std::optional<Strides> strides = view_strides(x.sizes(), x.strides(), target);
  check(strides.has_value(), "view", "sizes {} are not compatible with strides {} of sizes {}; use reshape()", target,
        x.strides(), x.sizes());
  return recorded_view(x, target, *strides);
}

Tensor reshape(const Tensor& x, const Sizes& sizes) {
  check_defined("reshape", "x", x);
  const Sizes target = infer_sizes("reshape", x, sizes);
  if (const std::optional<Strides> strides = view_strides(x.sizes(), x.strides(), target)) {
    return recorded_view(x, target, *strides);
  }
  return recorded_view(contiguous(x), target, contiguous_strides(target));
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  check_defined("flatten", "x", x);
  const int64_t rank = std::max<int64_t>(x.rank(), 1);  // rank 0 counts as one axis of size 1
  const int64_t first = normalize_axis("flatten", start, rank);
  const int64_t last = normalize_axis("flatten", end, rank);
  check(first <= last, "flatten", "end: expected an axis at or behind start {}, got {}", start, end);
  if (x.rank() == 0) {
    return reshape(x, {1});
  }
  Sizes sizes;
  int64_t merged = 1;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    merged *= axis >= first && axis <= last ? x.size(axis) : 1;
    if (axis == last) {
      sizes.push_back(merged);
    } else if (axis < first || axis > last) {
      sizes.push_back(x.size(axis));
    }
  }
  return reshape(x, sizes);
}

Tensor permute(const Tensor& x, const Axes& order) {
  Op op("permute");
  check_defined(op, "x", x);
  check(order.size() == x.rank(), op, "order: expected {} axes, got {}", x.rank(), order);
  Sizes sizes = x.sizes();
  Strides strides = x.strides();
  Axes axes = order;  // not negative
  Axes inverse = Axes::filled(x.rank(), -1);
  for (int64_t i = 0; i < order.size(); ++i) {
    const int64_t axis = axes[i] = normalize_axis(op, order[i], x.rank());
    check(inverse[axis] < 0, op, "order: expected each axis once, got {}", order);
    inverse[axis] = i;
    sizes[i] = x.sizes()[axis];
    strides[i] = x.strides()[axis];
  }
  op.describe({{"order", axes}});
  const bool remade = can_be_remade(x);
  const Tensor y = op.record({x}, alias(x, sizes, strides, x.offset()), {remade ? x : Tensor()},
                             [inverse, format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
                               return Tensors{in_format(permute(dy, inverse), format)};
                             });
  if (remade) {
    remake_by(y, [order](const BackwardContext& c) { return permute(c.saved(0), order); });
  }
  return y;
}

Tensor transpose(const Tensor& x, int64_t a, int64_t b) {
  check_defined("transpose", "x", x);
  const int64_t rank = std::max<int64_t>(x.rank(), 1);  // rank 0 counts as one axis of size 1
  const int64_t first = normalize_axis("transpose", a, rank);
  const int64_t second = normalize_axis("transpose", b, rank);
  Axes order;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    order.push_back(axis == first ? second : axis == second ? first : axis);
  }
  return permute(x, order);
}

Tensor expand(const Tensor& x, const Sizes& sizes) {
  const Op op("expand");
  check_defined(op, "x", x);
  const int64_t added = sizes.size() - x.rank();
  check(added >= 0, op, "sizes: expected at least {} axes, as in {}, got {}", x.rank(), x.sizes(), sizes);
  Sizes target = sizes;
  Strides strides = Strides::filled(sizes.size(), 0);
  for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
    const int64_t own = axis < added ? 1 : x.sizes()[axis - added];
    if (sizes[axis] == -1 && axis >= added) {
      target[axis] = own;
    }
    check(target[axis] >= 0 && (own == 1 || own == target[axis]), op, "sizes: {} cannot be expanded to {}", x.sizes(),
          sizes);
    if (target[axis] != own) {
      continue;  // repeated
    }
    if (axis >= added) {
      strides[axis] = x.strides()[axis - added];
    } else if (x.rank() > 0) {
      // A new axis that repeats nothing stands outside of those after it, as in unsqueeze().
      strides[axis] = target[axis + 1] * strides[axis + 1];
    }
  }
  checked_numel(op, target);
  return recorded(op, x, alias(x, target, strides, x.offset()),
                  [from = x.sizes()](const Tensor& dy) { return sum_to_size(dy, from); });
}

Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  check_defined("slice", "x", x);
  axis = normalize_axis("slice", axis, x.rank());
  check(step >= 1, "slice", "step: expected at least 1, got {}", step);
  const int64_t size = x.size(axis);
  const auto bound = [size](int64_t position) {
    return std::clamp<int64_t>(position < 0 ? position + size : position, 0, size);
  };
  const int64_t first = bound(start);
  const int64_t length = std::max<int64_t>(bound(end) - first, 0);
  return recorded_part(
      x, {.axis = axis, .start = first, .length = length / step + (length % step == 0 ? 0 : 1), .step = step});
}

Tensor narrow(const Tensor& x, int64_t axis, int64_t start, int64_t length) {
  check_defined("narrow", "x", x);
  axis = normalize_axis("narrow", axis, x.rank());
  const int64_t size = x.size(axis);
  const int64_t first = start < 0 ? start + size : start;
  check(first >= 0 && first <= size, "narrow", "start: expected a value in [{}, {}], got {}", -size, size, start);
  check(length >= 0 && length <= size - first, "narrow", "length: expected a value in [0, {}] from start {}, got {}",
        size - first, start, length);
  return recorded_part(x, {.axis = axis, .start = first, .length = length, .step = 1});
}

Tensor part_of(const Tensor& x, int64_t axis, int64_t start, int64_t length) {
  return alias_of_part(x, {.axis = axis, .start = start, .length = length, .step = 1});
}

Tensor select(const Tensor& x, int64_t axis, int64_t index) {
  Op op("select");
  check_defined(op, "x", x);
  axis = normalize_axis(op, axis, x.rank());
  const int64_t size = x.size(axis);
  check(index >= -size && index < size, op, "index: expected a value in [{}, {}), got {}", -size, size, index);
  const Part part{.axis = axis, .start = index < 0 ? index + size : index, .length = 1, .step = 1};
  const Sizes sizes = x.sizes().without(axis);
  const int64_t skipped = sizes.numel() == 0 ? 0 : part.start * x.stride(axis);
  op.describe({{"axis", axis}, {"index", part.start}});
  return op.record(
      {x}, alias(x, sizes, x.strides().without(axis), x.offset() + skipped), {},
      [part, from = x.sizes(), format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
        return Tensors{slice_backward(with_axis(dy, part.axis), part, from, format)};
      });
}

Tensor unsqueeze(const Tensor& x, int64_t axis) {
  check_defined("unsqueeze", "x", x);
  return with_axis(x, normalize_axis("unsqueeze", axis, x.rank() + 1));
}

Tensor squeeze(const Tensor& x, int64_t axis) {
  check_defined("squeeze", "x", x);
  axis = normalize_axis("squeeze", axis, std::max<int64_t>(x.rank(), 1));  // rank 0 counts as one axis of size 1
  return x.rank() > 0 && x.size(axis) == 1 ? without_axis(x, axis) : x;
}

Tensor squeeze(const Tensor& x) {
  check_defined("squeeze", "x", x);
  Tensor y = x;
  for (int64_t axis = x.rank() - 1; axis >= 0; --axis) {
    y = x.size(axis) == 1 ? without_axis(y, axis) : y;
  }
  return y;
}

}  // namespace norma
