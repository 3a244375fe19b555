// Compares two norms by hand, as `norma compare` does: the same start values, the same images in the same order, and
// training steps that take turns, so that both see the same moments of the machine.
//   compare_norms [NORM NORM]        batch and group:8 by default; any norm of docs/norms.md

#include <norma/norma.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kSteps = 100;
constexpr double kLr = 1e-2;

std::shared_ptr<nn::Module> make_network(const std::string& norm) {
  manual_seed(1);  // the same start values for both: norms draw none
  auto network = std::make_shared<nn::Sequential>();
  int64_t from = 3;
  for (const int64_t channels : {16, 32, 64}) {
    network->push_back(
        std::make_shared<nn::Conv2d>(from, channels, 3, nn::Conv2dOptions{.stride = 2, .padding = 1, .bias = false}));
    network->push_back(nn::make_norm(norm, channels));
    network->push_back(std::make_shared<nn::ReLU>());
    from = channels;
  }
  network->push_back(std::make_shared<nn::AdaptiveAvgPool2d>(1));
  network->push_back(std::make_shared<nn::Flatten>());
  network->push_back(std::make_shared<nn::Linear>(from, 10));
  network->to(MemoryFormat::channels_last);
  return network;
}

struct Candidate {
  explicit Candidate(const std::string& spec)
      : norm(spec),
        model(make_network(spec)),
        optimizer(nn::parameter_groups(*model, /* weight_decay= */ 0.05), {.lr = kLr}) {}

  std::string norm;
  std::shared_ptr<nn::Module> model;
  nn::AdamW optimizer;
  std::vector<double> seconds;
  float loss = 0;
};

/// Seconds of one training step.
double train_step(Candidate& candidate, const data::Batch& batch, const nn::Schedule& schedule) {
  const auto start = std::chrono::steady_clock::now();
  candidate.optimizer.set_lr(kLr * schedule(batch.step));
  candidate.optimizer.zero_grad();
  const Tensor loss = cross_entropy((*candidate.model)(batch.images), batch.labels);
  loss.backward();
  candidate.optimizer.step();
  candidate.loss = loss.item<float>();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double accuracy(nn::Module& model, data::Loader batches) {
  const NoGradGuard no_grad;
  model.eval();
  int64_t right = 0;
  int64_t seen = 0;
  while (const auto batch = batches.next()) {
    right += sum(to(equal(argmax(model(batch->images), 1), batch->labels), DType::int64)).item<int64_t>();
    seen += batch->labels.numel();
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(seen);
}

void compare(const std::string& one, const std::string& other) {
  std::array<Candidate, 2> candidates{Candidate(one), Candidate(other)};
  const auto train_images = data::make_dataset("shapes", {.size = kBatch * kSteps});
  const auto test_images = data::make_dataset("shapes", {.split = data::Split::test, .size = 1000});
  const auto& info = train_images->info();
  const data::Transform transform(info);
  const data::LoaderOptions options{.batch_size = kBatch, .shuffle = true, .format = MemoryFormat::channels_last};

  // The first norm of a step finds the batch in memory, not in the cache, so they swap places after each step.
  data::Loader batches(train_images, transform, options);
  const nn::Schedule schedule = nn::one_cycle_schedule({.steps = kSteps});
  while (const auto batch = batches.next()) {
    const size_t first = static_cast<size_t>(batch->step) % 2;
    for (const size_t i : {first, 1 - first}) {
      candidates[i].seconds.push_back(train_step(candidates[i], *batch, schedule));
    }
  }

  // The second norm's extra time, as the median over the steps: one slow step says nothing.
  std::vector<double> ratios;
  for (size_t step = 5; step < candidates[0].seconds.size(); ++step) {  // the first steps fetch memory
    ratios.push_back(candidates[1].seconds[step] / candidates[0].seconds[step]);
  }
  std::sort(ratios.begin(), ratios.end());
  for (Candidate& candidate : candidates) {
    data::Loader tests(test_images, transform, {.batch_size = 100, .format = MemoryFormat::channels_last});
    std::printf("%-12s loss %.3f, test accuracy %.1f %%\n", candidate.norm.c_str(), candidate.loss,
                accuracy(*candidate.model, std::move(tests)));
  }
  std::printf("a step with %s takes %.3f times as long as one with %s (median of %zu; the middle half: %.3f to %.3f)\n",
              candidates[1].norm.c_str(), ratios[ratios.size() / 2], candidates[0].norm.c_str(), ratios.size(),
              ratios[ratios.size() / 4], ratios[3 * ratios.size() / 4]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    compare(argc > 2 ? argv[1] : "batch", argc > 2 ? argv[2] : "group:8");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
