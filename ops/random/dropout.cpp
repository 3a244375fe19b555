#include "ops/random/dropout.h"

#include "core/factory.h"
#include "core/op.h"
#include "ops/pointwise/pointwise.h"
#include "ops/random/batch_part.h"
#include "ops/random/kernels.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

namespace norma {

using kernels::DropoutMask;

namespace {

thread_local const BatchPart* current_part = nullptr;

void check_arguments(std::string_view op, const Tensor& x, double rate) {
  dispatch_any_floating(op, x.dtype(), [](auto) {});
  check(rate >= 0 && rate <= 1, op, "rate: expected a value in [0, 1], got {}", rate);
}

DropoutMask mask_of(Generator& generator, uint64_t counters, double rate) {
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

/// A mask of these sizes: factors of 0 or 1 / (1 - rate). Where x is a part of a batch, its part of the whole mask.
Tensor factors(const Op& op, const Tensor& x, Sizes sizes, double rate, Generator& generator) {
  const BatchPart* const part = current_batch_part();
  if (part != nullptr) {
    check(sizes[0] == part->images, op, "x: expected the {} images of a part of a batch, got sizes {}", part->images,
          x.sizes());
    sizes[0] = part->total;
  }
  const auto counters = (static_cast<uint64_t>(sizes.numel()) + 3) / 4;
  const DropoutMask mask = mask_of(generator, counters, rate);
  const Tensor one = ones(sizes, {.dtype = x.dtype(), .device = x.device()});
  const Tensor factor = empty_like(one);
  op.run(kernels::random_kernels, one, factor)
      ->dropout(x.dtype(), sizes, factor.device_pointer(), factor.strides(), one.device_pointer(), one.strides(), mask);
  return part == nullptr ? factor : narrow(factor, 0, part->first, part->images);
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
  if (current_batch_part() != nullptr && x.rank() > 0) {
    // In the dtype of the computation, in which masked() scales: a factor of 16 bits would be rounded.
    const Tensor wide = to(x, compute_dtype(x.dtype()));
    return to(mul(wide, factors(op, wide, wide.sizes(), rate, generator)), x.dtype());
  }
  const auto counters = (static_cast<uint64_t>(x.numel()) + 3) / 4;
  return masked(op, x, mask_of(generator, counters, rate));
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
  return mul(x, factors(op, x, sizes, rate, generator));
}

}  // namespace norma
