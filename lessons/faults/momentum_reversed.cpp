// Batch norm, made of ops, with running statistics for evaluation.
//   running = (1 - momentum) · running + momentum · that of the batch
#include "by_hand.h"

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

class WithOwnUpdate : public BatchNormByHand {
  using BatchNormByHand::BatchNormByHand;

  void update(const Tensor& m, const Tensor& v, double count) override {
    const double unbiased = count / (count - 1);
    add_(mul_(running_mean_, momentum_), m * (1 - momentum_));
    add_(mul_(running_var_, momentum_), v * (unbiased * (1 - momentum_)));
  }
};

}  // namespace

NORMA_PLUGIN {
  register_batch_norm<WithOwnUpdate>("momentum_reversed");
}
