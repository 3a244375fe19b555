#include "ops/random/dropout.h"

#include "core/factory.h"
#include "core/op.h"
#include "ops/pointwise/pointwise.h"
#include "ops/random/batch_part.h"
#include "ops/random/kernels.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

namespace norma {

using kernels::DropoutMask;

namespace {

thread_local const BatchPart* current_part = nullptr;

void check_arguments(std::string_view op, const Tensor& x, double rate) {
  dispatch_any_floating(op, x.dtype(), [](auto) {});
  check(rate >= 0 && rate <= 1, op, "rate: expected a value in [0, 1], got {}", rate);
}

DropoutMask mask_of(Generator& generator, int64_t count, double rate) {
  const uint64_t counters = (static_cast<uint64_t>(count) + 3) / 4;
  return {.seed = generator.seed(), .first = generator.reserve(counters), .rate = rate, .origin = generator.origin()};
}

/// x times the mask. It is linear in x, so it is its own backward function at any order.
Tensor masked(const Op& op, const Tensor& x, const DropoutMask& mask) {
  Tensor y = empty_like(x);
  op.run(kernels::random_kernels, x, y)
      ->dropout(x.dtype(), x.sizes(), y.device_pointer(), y.strides(), x.device_pointer(), x.strides(), mask);
  return op.record({x}, y, {}, [mask](const Tensor& dy, const BackwardContext&) -> Tensors {
    return {masked(Op("dropout_backward"), dy, mask)};
  });
}

/// The part of a batch that x is; null where x is a whole one.
const BatchPart* part_that_is(const Op& op, const Tensor& x) {
  const BatchPart* const part = x.rank() > 0 ? current_batch_part() : nullptr;
  check(part == nullptr || x.size(0) == part->images, op,
        "x: expected the {} images of a part of a batch, got sizes {}", part == nullptr ? 0 : part->images, x.sizes());
  return part;
}

/// x times a new mask. Where x is a part of a batch, its part of the whole batch's product.
Tensor dropped(const Op& op, const Tensor& x, const BatchPart* part, double rate, Generator& generator) {
  if (part == nullptr) {
    return masked(op, x, mask_of(generator, x.numel(), rate));
  }
  Sizes before = Sizes::filled(x.rank(), 0);
  Sizes after = before;
  before[0] = part->first;
  after[0] = part->total - part->first - part->images;
  const Tensor whole = dropped(op, pad(x, before, after), nullptr, rate, generator);
  return clone(narrow(whole, 0, part->first, part->images));  // a view could not be changed in place
}

}  // namespace

BatchPartGuard::BatchPartGuard(const BatchPart& part) : Temporarily(current_part, &part_), part_(part) {}

const BatchPart* current_batch_part() {
  return current_part;
}

Tensor dropout(const Tensor& input, double rate, bool training, Generator& generator) {
  const Op op(named<"dropout">);
  const Tensor x = op.input("x", input);
  check_arguments(op, x, rate);
  if (!training || rate == 0) {
    return x;
  }
  return dropped(op, x, part_that_is(op, x), rate, generator);
}

Tensor drop_path(const Tensor& input, double rate, bool training, Generator& generator) {
  const Op op(named<"drop_path">);
  const Tensor x = op.input("x", input);
  check_arguments(op, x, rate);
  check(x.rank() >= 1, op, "x: expected rank 1 or more (axis 0 counts samples), got rank 0");
  if (!training || rate == 0) {
    return x;
  }
  // One factor for each sample, broadcast over the rest; mul() saves only this, a few bytes, for the backward pass.
  Sizes sizes = Sizes::filled(x.rank(), 1);
  sizes[0] = x.size(0);
  const Tensor one = ones(sizes, {.dtype = x.dtype(), .device = x.device()});
  return mul(x, dropped(op, one, part_that_is(op, x), rate, generator));
}

}  // namespace norma
