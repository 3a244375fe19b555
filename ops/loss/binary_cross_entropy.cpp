#include "ops/loss/binary_cross_entropy.h"

#include "core/autocast.h"
#include "core/error.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/loss/classes.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <cstdint>
#include <limits>
#include <string_view>

namespace norma {
namespace {

constexpr std::string_view kOp = "binary_cross_entropy_with_logits";

/// One row for each class number: 1 in its class, 0 elsewhere.
Tensor one_hot(const Tensor& classes, const Tensor& logits) {
  const Tensor numbers = unsqueeze(classes, 1);
  return to(equal(numbers, unsqueeze(arange(logits.size(1), DType::int64, logits.device()), 0)), logits.dtype());
}

void check_weight(std::string_view name, const Tensor& weight, const Tensor& logits) {
  if (weight.defined()) {
    check_floating(kOp, name, weight);
    check_device(kOp, name, weight, logits.device());
    check(!weight.requires_grad(), kOp, "{}: expected constants, got a tensor that requires a gradient", name);
  }
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

Tensor binary_cross_entropy_with_logits(const Tensor& uncast_logits, const Tensor& uncast_target,
                                        const BinaryCrossEntropyOptions& options) {
  const AutocastOp cast("cross_entropy");
  const Tensor logits = cast.input(uncast_logits);
  const Tensor target = cast.like(uncast_target, logits);
  check_defined(kOp, "logits", logits);
  check_defined(kOp, "target", target);
  check_floating(kOp, "logits", logits);
  check(logits.numel() > 0, kOp, "logits: expected at least one, got sizes {}", to_string(logits.sizes()));
  check_device(kOp, "target", target, logits.device());
  const double smoothing = options.label_smoothing;
  check(smoothing >= 0 && smoothing < 1, kOp, "label_smoothing: expected a value in [0, 1), got {}", smoothing);
  const bool class_numbers =
      target.dtype() == DType::int64 && logits.rank() == 2 && target.sizes() == Sizes{logits.size(0)};
  check(class_numbers || (target.dtype() == logits.dtype() && target.sizes() == logits.sizes()), kOp,
        "target: expected int64 classes for logits (N, C), or {} probabilities of sizes {}, got {} {}",
        to_string(logits.dtype()), to_string(logits.sizes()), to_string(target.dtype()), to_string(target.sizes()));
  check(class_numbers || smoothing == 0, kOp, "label_smoothing: expected 0 for probabilities, got {}", smoothing);
  check_weight("weight", options.weight, logits);
  check_weight("pos_weight", options.pos_weight, logits);

  const bool classes_checked = !class_numbers || check_classes(kOp, target, logits.size(1));
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
