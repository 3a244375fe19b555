// A small network is trained, and evaluated once in between.
#include "run.h"

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

double test_loss(nn::Module& model, data::Loader batches) {
  const NoGradGuard no_grad;
  model.eval();
  double sum = 0;
  int64_t count = 0;
  while (const auto batch = batches.next()) {
    sum += cross_entropy(model(batch->images), batch->labels).item<float>();
    ++count;
  }
  return sum / static_cast<double>(count);
}

}  // namespace

int main() {
  constexpr int64_t kSteps = 60;
  manual_seed(1);
  const auto images = std::make_shared<faults::Stripes>(faults::kBatch * kSteps);
  const auto model = faults::small_network(images->info().num_classes());
  const auto test_images = std::make_shared<faults::Stripes>(128, /* seed= */ 1);
  nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 5e-4), {.lr = 0.1});
  faults::run_training(*model, optimizer, images, [&](int64_t step) {
    if (step == 10) {
      std::printf("test loss %.2f\n", test_loss(*model, faults::batches_of(test_images)));
    }
  });
  std::printf("test loss %.2f\n", test_loss(*model, faults::batches_of(test_images)));
}
