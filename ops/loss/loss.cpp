#include "ops/loss/loss.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/loss/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace norma {

namespace {

/// Throws Error of `op` for a class number outside [0, count) other than `ignored`, with the first such row. classes:
/// int64 (N), any strides; count: 1 or more. Returns false if it could not look without waiting for the device.
bool check_classes(std::string_view op, const Tensor& classes, int64_t count,
                   std::optional<int64_t> ignored = std::nullopt) {
  const auto find = kernels::loss_kernels.table(op, classes.device()).find_no_class;
  if (find == nullptr) {
    return false;
  }
  const Tensor dense = contiguous(classes);
  const int64_t ignore_index = ignored.value_or(0);  // 0 is a class, so no other number passes
  const int64_t row =
      find({.rows = dense.numel(), .classes = count, .ignore_index = ignore_index}, dense.device_pointer<int64_t>());
  if (row >= 0) {
    const std::string or_ignored = ignored ? fmt::format(" or {}", *ignored) : "";
    fail(op, "target: expected classes in [0, {}){}, got {} at index {}", count, or_ignored,
         select(dense, 0, row).item<int64_t>(), row);
  }
  return true;
}

kernels::SoftmaxShape softmax_shape(const Tensors& tensors, int64_t axis) {
  kernels::SoftmaxShape shape{
      .sizes = tensors[0].sizes().without(axis), .length = tensors[0].size(axis), .strides = {}, .steps = {}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    shape.strides[i] = tensors[i].strides().without(axis);
    shape.steps[i] = tensors[i].stride(axis);
  }
  return shape;
}

/// The kernels' formulas in differentiable ops, for second derivatives.
Tensor composed_softmax_backward(const Tensor& y, const Tensor& dy, int64_t axis, bool logarithm) {
  if (logarithm) {
    return sub(dy, mul(exp(y), sum(dy, {axis}, {.keepdim = true})));
  }
  return mul(y, sub(dy, sum(mul(dy, y), {axis}, {.keepdim = true})));
}

Tensor any_softmax(std::string_view name, const Tensor& input, int64_t axis, bool logarithm) {
  Op op(name);
  const Tensor x = op.input("x", input);
  check_floating(op, "x", x);
  if (x.rank() == 0) {
    return reshape(any_softmax(name, reshape(x, {1}), axis, logarithm), {});
  }
  axis = normalize_axis(op, axis, x.rank());
  if (is_half(x.dtype())) {  // 16-bit numbers are computed in float32
    return to(any_softmax(name, to(x, DType::float32), axis, logarithm), x.dtype());
  }
  const Tensor y = empty_like(x);
  if (x.numel() > 0) {
    op.run(kernels::loss_kernels, x, y)
        ->softmax(softmax_shape({x, y}, axis), x.dtype(), logarithm, x.device_pointer(), y.device_pointer());
  }
  op.describe({{"axis", axis}});
  return op.record({x}, y, {y}, [axis, logarithm](const Tensor& dy, const BackwardContext& c) {
    const Tensor output = c.saved(0);
    if (c.create_graph()) {
      return Tensors{composed_softmax_backward(output, dy, axis, logarithm)};
    }
    const Tensor dx = empty_like(output);
    if (dx.numel() > 0) {
      Op("softmax_backward")
          .run(kernels::loss_kernels, output, dy, dx)
          ->softmax_backward(softmax_shape({output, dy, dx}, axis), dx.dtype(), logarithm, output.device_pointer(),
                             dy.device_pointer(), dx.device_pointer());
    }
    return Tensors{dx};
  });
}

/// The options and the state of a cross entropy, beside its arguments.
struct CrossEntropy {
  double smoothing;
  int64_t ignore_index;
  Tensor class_weights;  ///< float64 (C), dense, or undefined
  bool per_row;
  Tensor divisor = {};  ///< of the sum of all rows: float64, of rank 0; undefined: 1
};

kernels::CrossEntropyShape shape_of(const CrossEntropy& loss, const Tensor& logits, const Tensor& target) {
  const bool probabilities = target.rank() == 2;
  return {.rows = logits.size(0),
          .classes = logits.size(1),
          .x_row = logits.stride(0),
          .x_step = logits.stride(1),
          .target_row = probabilities ? target.stride(0) : 0,
          .target_step = probabilities ? target.stride(1) : 0,
          .smoothing = loss.smoothing,
          .class_weights = loss.class_weights.defined() ? loss.class_weights.device_pointer<double>() : nullptr,
          .ignore_index = loss.ignore_index};
}

/// One row for each class number: 1 in its class, 0 elsewhere.
Tensor one_hot(const Tensor& classes, const Tensor& logits) {
  const Tensor numbers = unsqueeze(classes, 1);
  return to(equal(numbers, unsqueeze(arange(logits.size(1), DType::int64, logits.device()), 0)), logits.dtype());
}

void check_weight(const Op& op, std::string_view name, const Tensor& weight, const Tensor& logits) {
  if (weight.defined()) {
    check_floating(op, name, weight);
    check_device(op, name, weight, logits.device());
    check(!weight.requires_grad(), op, "{}: expected constants, got a tensor that requires a gradient", name);
  }
}

/// The weight in the form that the kernels take.
Tensor checked_class_weights(const Op& op, const Tensor& weight, const Tensor& logits) {
  if (!weight.defined()) {
    return {};
  }
  check_sizes(op, "weight", weight, {logits.size(1)});
  check_weight(op, "weight", weight, logits);
  return copy_of(weight, MemoryFormat::contiguous, DType::float64);
}

/// The gradients of cross_entropy in differentiable ops.
Tensors composed_cross_entropy_backward(const CrossEntropy& loss, const Tensor& saved_logits, const Tensor& target,
                                        const Tensor& dy, const BackwardContext& c) {
  const int64_t classes = saved_logits.size(1);
  Tensor logits = saved_logits;
  Tensor weight = loss.per_row ? unsqueeze(dy, 1) : dy;
  if (loss.divisor.defined()) {
    const Tensor nothing = zeros_like(loss.divisor);
    const Tensor scale = where(equal(loss.divisor, nothing), nothing, div(ones_like(loss.divisor), loss.divisor));
    weight = mul(weight, to(scale, weight.dtype()));
  }
  Tensor q = target;
  if (target.rank() == 1) {
    q = one_hot(target, logits);
    const Tensor number =
        from_vector<int64_t>({loss.ignore_index}, {1, 1}, {.dtype = DType::int64, .device = target.device()});
    const Tensor ignored = equal(unsqueeze(target, 1), number);
    weight = where(ignored, zeros_like(weight), weight);
    logits = where(ignored, zeros_like(logits), logits);  // ignored logits may be infinite or NaN
  }
  q = add(mul(q, 1 - loss.smoothing), loss.smoothing / static_cast<double>(classes));
  Tensor of_target = mul(weight, loss.smoothing - 1);
  if (loss.class_weights.defined()) {
    const Tensor class_weights = unsqueeze(to(loss.class_weights, logits.dtype()), 0);
    const Tensor weighted = mul(q, class_weights);
    const bool one_class = target.rank() == 1 && loss.smoothing == 0;  // the weights of others may be infinite
    q = one_class ? where(equal(q, zeros_like(q)), q, weighted) : weighted;
    of_target = mul(of_target, class_weights);
  }
  Tensors gradients(2);
  if (c.needs_grad(0)) {
    const Tensor total = sum(q, {1}, {.keepdim = true});
    gradients[0] = mul(sub(mul(softmax(logits, 1), total), q), weight);
  }
  if (c.needs_grad(1)) {
    gradients[1] = mul(log_softmax(logits, 1), of_target);
  }
  return gradients;
}

Tensor wide_losses(const Tensor& logits, const Tensor& probabilities, const Tensor& pos_weight) {
  const int64_t count = logits.numel();
  // log(sigmoid(x)) and log(1 - sigmoid(x)) are the log softmax of [x, 0].
  const Tensor rows = reshape(logits, {count});
  const Tensor yes = reshape(probabilities, {count});
  const Tensor positive =
      pos_weight.defined() ? reshape(mul(probabilities, to(pos_weight, probabilities.dtype())), {count}) : yes;
  const Tensor pairs = stack({rows, zeros_like(rows.detach())}, 1);
  const Tensor targets = stack({positive, add(neg(yes), 1)}, 1);
  return reshape(cross_entropy(pairs, targets, {.reduction = Reduction::none}), logits.sizes());
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t axis) {
  return any_softmax(named<"softmax", CastRule::float32>, x, axis, /* logarithm= */ false);
}

Tensor log_softmax(const Tensor& x, int64_t axis) {
  return any_softmax(named<"log_softmax", CastRule::float32>, x, axis, /* logarithm= */ true);
}

Tensor cross_entropy(const Tensor& uncast_logits, const Tensor& uncast_target, const CrossEntropyOptions& options) {
  const Op op(named<"cross_entropy", CastRule::float32>);
  const Tensor logits = op.input("logits", uncast_logits);
  const Tensor target = op.like(logits, uncast_target);
  check_floating(op, "logits", logits);
  check_rank(op, "logits", logits, 2);
  check(logits.numel() > 0, op, "logits: expected at least one row and one class, got sizes {}", logits.sizes());
  check_device(op, "target", target, logits.device());
  const double smoothing = options.label_smoothing;
  check(smoothing >= 0 && smoothing < 1, op, "label_smoothing: expected a value in [0, 1), got {}", smoothing);
  const int64_t rows = logits.size(0);
  const bool class_numbers = target.dtype() == DType::int64 && target.sizes() == Sizes{rows};
  check(class_numbers || (target.dtype() == logits.dtype() && target.sizes() == logits.sizes()), op,
        "target: expected int64 classes of sizes [{}] or {} probabilities of sizes {}, got {} {}", rows,
        to_string(logits.dtype()), logits.sizes(), to_string(target.dtype()), target.sizes());
  if (is_half(logits.dtype())) {  // 16-bit numbers are computed in float32
    const Tensor wide = class_numbers ? target : to(target, DType::float32);
    return to(cross_entropy(to(logits, DType::float32), wide, options), logits.dtype());
  }
  CrossEntropy fixed{.smoothing = smoothing,
                     .ignore_index = options.ignore_index,
                     .class_weights = checked_class_weights(op, options.weight, logits),
                     .per_row = options.reduction == Reduction::none};
  const Tensor kept_target = class_numbers ? contiguous_copy(target) : target;
  if (class_numbers) {
    check_classes(op, kept_target, logits.size(1), options.ignore_index);
  }

  const TensorOptions wide_options{.dtype = DType::float64, .device = logits.device()};
  const Tensor losses = empty({rows}, wide_options);
  const Tensor log_sum = empty({rows}, wide_options);
  const Tensor counts = empty({rows}, wide_options);
  op.run(kernels::loss_kernels, logits, target)
      ->cross_entropy(shape_of(fixed, logits, kept_target), logits.dtype(), class_numbers, logits.device_pointer(),
                      kept_target.device_pointer(), losses.device_pointer<double>(), log_sum.device_pointer<double>(),
                      counts.device_pointer<double>());
  Tensor result = fixed.per_row ? losses : sum(losses);
  if (options.reduction == Reduction::mean) {
    fixed.divisor = sum(counts);
    result = div(result, fixed.divisor);  // if no row counts, this is NaN and its gradient 0
  }
  const Tensor loss = to(result, logits.dtype());

  const Tensors saved{logits, kept_target, log_sum, fixed.class_weights, fixed.divisor};
  fixed.class_weights = fixed.divisor = {};
  return op.record({logits, target}, loss, saved,
                   [without_tensors = fixed, class_numbers](const Tensor& dy, const BackwardContext& c) {
                     const auto [x, t, log_sums, class_weights, divisor] = c.saved<5>();
                     CrossEntropy call = without_tensors;
                     call.class_weights = class_weights;
                     call.divisor = divisor;
                     if (c.create_graph()) {
                       return composed_cross_entropy_backward(call, x, t, dy, c);
                     }
                     const TensorOptions dense_options{.dtype = x.dtype(), .device = x.device()};
                     Tensors gradients(2);
                     for (size_t i = 0; i < 2; ++i) {
                       gradients[i] = c.needs_grad(i) ? empty(x.sizes(), dense_options) : Tensor();
                     }
                     Op("cross_entropy_backward")
                         .run(kernels::loss_kernels, x, t, gradients[0], gradients[1])
                         ->cross_entropy_backward(shape_of(call, x, t), x.dtype(), class_numbers, x.device_pointer(),
                                                  t.device_pointer(), log_sums.device_pointer<double>(),
                                                  dy.device_pointer(), call.per_row ? dy.stride(0) : 0,
                                                  static_cast<const double*>(pointer_or_null(call.divisor)),
                                                  pointer_or_null(gradients[0]), pointer_or_null(gradients[1]));
                     return gradients;
                   });
}

Tensor binary_cross_entropy_with_logits(const Tensor& uncast_logits, const Tensor& uncast_target,
                                        const BinaryCrossEntropyOptions& options) {
  const Op op("binary_cross_entropy_with_logits", "cross_entropy");
  const Tensor logits = op.input("logits", uncast_logits);
  const Tensor target = op.like(logits, uncast_target);
  check_floating(op, "logits", logits);
  check(logits.numel() > 0, op, "logits: expected at least one, got sizes {}", logits.sizes());
  check_device(op, "target", target, logits.device());
  const double smoothing = options.label_smoothing;
  check(smoothing >= 0 && smoothing < 1, op, "label_smoothing: expected a value in [0, 1), got {}", smoothing);
  const bool class_numbers =
      target.dtype() == DType::int64 && logits.rank() == 2 && target.sizes() == Sizes{logits.size(0)};
  check(class_numbers || (target.dtype() == logits.dtype() && target.sizes() == logits.sizes()), op,
        "target: expected int64 classes for logits (N, C), or {} probabilities of sizes {}, got {} {}",
        to_string(logits.dtype()), logits.sizes(), to_string(target.dtype()), target.sizes());
  check(class_numbers || smoothing == 0, op, "label_smoothing: expected 0 for probabilities, got {}", smoothing);
  check_weight(op, "weight", options.weight, logits);
  check_weight(op, "pos_weight", options.pos_weight, logits);

  const bool classes_checked = !class_numbers || check_classes(op, target, logits.size(1));
  const DType dtype = compute_dtype(logits.dtype());
  const Tensor wide = to(logits, dtype);
  const Tensor hits = class_numbers ? one_hot(target, wide) : Tensor();
  Tensor probabilities = class_numbers ? add(mul(hits, 1 - smoothing), smoothing / static_cast<double>(logits.size(1)))
                                       : to(target, dtype);
  if (options.target_threshold) {
    probabilities = to(greater(probabilities.detach(), *options.target_threshold), dtype);
  }
  Tensor losses = wide_losses(wide, probabilities, options.pos_weight);
  if (options.weight.defined()) {
    losses = mul(losses, to(options.weight, dtype));
  }
  if (!classes_checked) {
    losses = where(greater(sum(hits, {1}, {.keepdim = true}), 0), losses,
                   full({}, std::numeric_limits<double>::quiet_NaN(), {.dtype = dtype, .device = logits.device()}));
  }
  const Tensor result = options.reduction == Reduction::mean  ? mean(losses)
                        : options.reduction == Reduction::sum ? sum(losses)
                                                              : losses;
  return to(result, logits.dtype());
}

}  // namespace norma
