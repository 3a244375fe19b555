// A whole training run in one page: a small network, generated images, AdamW with one-cycle, test accuracy.

#include <norma/norma.h>

#include <cstdio>
#include <memory>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

std::shared_ptr<nn::Module> convolution(int64_t from, int64_t to) {
  return std::make_shared<nn::Conv2d>(from, to, 3, nn::Conv2dOptions{.stride = 2, .padding = 1, .bias = false});
}

double accuracy(nn::Module& model, data::Loader batches) {
  const NoGradGuard no_grad;
  model.eval();
  int64_t right = 0;
  int64_t seen = 0;
  while (const auto batch = batches.next()) {
    const Tensor hits = equal(argmax(model(to(batch->images, model.device())), 1), to(batch->labels, model.device()));
    right += sum(to(hits, DType::int64)).item<int64_t>();
    seen += batch->labels.numel();
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(seen);
}

}  // namespace

int main() {
  constexpr int64_t kBatch = 64;
  constexpr int64_t kSteps = 150;
  const auto train_images = data::make_dataset("shapes", {.size = kBatch * kSteps});
  const auto test_images = data::make_dataset("shapes", {.split = data::Split::test, .size = 1000});
  const auto& info = train_images->info();

  manual_seed(1);
  nn::Sequential model{convolution(3, 16),
                       std::make_shared<nn::BatchNorm2d>(16),
                       std::make_shared<nn::ReLU>(),
                       convolution(16, 32),
                       std::make_shared<nn::BatchNorm2d>(32),
                       std::make_shared<nn::ReLU>(),
                       convolution(32, 64),
                       std::make_shared<nn::BatchNorm2d>(64),
                       std::make_shared<nn::ReLU>(),
                       std::make_shared<nn::AdaptiveAvgPool2d>(1),
                       std::make_shared<nn::Flatten>(),
                       std::make_shared<nn::Linear>(64, info.num_classes())};
  const Device device = model.device();  // the CPU, or the device in NORMA_DEVICE
  model.to(MemoryFormat::channels_last);
  std::printf("%s%lld parameters\n", nn::to_string(model).c_str(), static_cast<long long>(model.parameter_count()));

  nn::AdamW optimizer(nn::parameter_groups(model, /* weight_decay= */ 0.05), {.lr = 1e-2});
  const nn::Schedule schedule = nn::one_cycle_schedule({.steps = kSteps});
  data::Loader batches(train_images, data::Transform(info),
                       {.batch_size = kBatch, .shuffle = true, .format = MemoryFormat::channels_last});
  while (const auto batch = batches.next()) {
    optimizer.set_lr(1e-2 * schedule(batch->step));
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(to(batch->images, device)), to(batch->labels, device));
    loss.backward();
    optimizer.step();
    if (batch->step % 30 == 0) {
      std::printf("step %3lld: loss %.3f\n", static_cast<long long>(batch->step), loss.item<float>());
    }
  }
  std::printf("test accuracy %.1f %%\n",
              accuracy(model, data::Loader(test_images, data::Transform(info), {.batch_size = kBatch})));
}
