// A small network is trained. The learning rate is in proportion to the batch (Goyal et al., 2017): 0.4 for 128 images.
#include "run.h"

using namespace norma;  // NOLINT: an example reads better without prefixes

int main() {
  constexpr int64_t kSteps = 40;
  manual_seed(1);
  const auto images = std::make_shared<faults::Stripes>(faults::kBatch * kSteps);
  const auto model = faults::small_network(images->info().num_classes());
  const double lr = 0.4 * faults::kBatch;
  nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 5e-4), {.lr = lr});
  faults::run_training(*model, optimizer, images);
}
