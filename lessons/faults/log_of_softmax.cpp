// A linear model learns from pixel values of 0 to 255, with a loss of its own.
#include "run.h"

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

/// The mean of -log(probability of the label). logits: (N, C), labels: (N).
Tensor negative_log_likelihood(const Tensor& logits, const Tensor& labels) {
  const Tensor is_label = equal(view(labels, {labels.size(0), 1}), arange(logits.size(1)));
  const Tensor log_probability = log(softmax(logits, 1));
  return -mean(sum(log_probability * to(is_label, DType::float32), {1}));
}

}  // namespace

int main() {
  const AnomalyGuard guard;  // each op looks for NaN and Inf
  manual_seed(1);
  const auto images = std::make_shared<faults::Stripes>(20 * faults::kBatch);
  data::Loader batches(
      images, data::Transform(images->info(), {.image_size = 16, .channels = 1, .mean = {0}, .std = {1 / 255.0F}}),
      {.batch_size = faults::kBatch});
  nn::Sequential model{std::make_shared<nn::Flatten>(), std::make_shared<nn::Linear>(16 * 16, 10)};
  nn::Sgd optimizer(nn::parameter_groups(model, /* weight_decay= */ 0), {.lr = 1e-3});
  try {
    while (const auto batch = batches.next()) {
      optimizer.zero_grad();
      const Tensor loss = negative_log_likelihood(model(batch->images), batch->labels);
      loss.backward();
      optimizer.step();
      std::printf("step %2lld: loss %.2f\n", static_cast<long long>(batch->step), loss.item<float>());
    }
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
