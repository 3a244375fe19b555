// A small network is trained with SGD and weight decay.
#include "run.h"

using namespace norma;  // NOLINT: an example reads better without prefixes

int main() {
  constexpr int64_t kSteps = 60;
  manual_seed(1);
  const auto images = std::make_shared<faults::Stripes>(faults::kBatch * kSteps);
  const auto model = faults::small_network(images->info().num_classes());
  // Strong weight decay for a short run: a real one has 5e-4 and a thousand times as many steps.
  nn::Sgd optimizer({{.parameters = model->named_parameters(), .weight_decay = 0.05}}, {.lr = 0.2});
  faults::run_training(*model, optimizer, images);
}
