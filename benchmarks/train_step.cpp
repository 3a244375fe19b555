// Times training steps (forward, loss, backward, optimizer) of one network on random images and prints one line of
// JSON. training_throughput.py runs it beside PyTorch; by hand: train_step --model resnet50 --channels-last

#include "core/spin_briefly.h"

#include <norma/norma.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace {

struct Options {
  std::string model = "resnet50";
  std::string norm;
  int64_t batch = 128;
  int64_t img_size = 32;
  std::optional<int64_t> patch_size;
  bool channels_last = false;
  int64_t warmup = 3;
  int64_t steps = 10;
};

std::vector<double> seconds_per_step(const Options& options) {
  constexpr int64_t kClasses = 10;
  auto model = norma::models::create_model(
      options.model, {.num_classes = kClasses, .norm = options.norm, .patch_size = options.patch_size});
  const auto format = options.channels_last ? norma::MemoryFormat::channels_last : norma::MemoryFormat::contiguous;
  model->to(format);
  norma::nn::AdamW optimizer(norma::nn::parameter_groups(*model, /* weight_decay= */ 0.05), {.lr = 1e-3});
  const norma::Tensor images = norma::randn({options.batch, 3, options.img_size, options.img_size}, {.format = format});
  const norma::Tensor labels = norma::randint(0, kClasses, {options.batch});

  std::vector<double> seconds;
  for (int64_t step = 0; step < options.warmup + options.steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    norma::cross_entropy((*model)(images), labels).backward();
    optimizer.step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (step >= options.warmup) {
      seconds.push_back(taken.count());
    }
  }
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  norma::spin_briefly(argv);
  Options options;
  CLI::App app("Times training steps of one network on random images and prints one line of JSON.");
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--norm", options.norm, "norm spec; the model's own by default");
  app.add_option("-b,--batch-size", options.batch)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--img-size", options.img_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--patch-size", options.patch_size, "ConvNeXt: size of a patch");
  app.add_flag("--channels-last", options.channels_last);
  app.add_option("--warmup", options.warmup, "steps before timing starts")->capture_default_str();
  app.add_option("--steps", options.steps, "steps to time")->capture_default_str()->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    const nlohmann::ordered_json line = {{"framework", "norma " + std::string(norma::version())},
                                         {"format", options.channels_last ? "channels_last" : "contiguous"},
                                         {"threads", norma::num_threads()},
                                         {"batch_size", options.batch},
                                         {"seconds", seconds_per_step(options)}};
    std::printf("%s\n", line.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_step: %s\n", e.what());
    return 1;
  }
}
