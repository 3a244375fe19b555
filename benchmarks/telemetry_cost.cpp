// Measures the cost of telemetry: a network's plain steps, timed steps and steps whose numbers are read take turns.
// Their medians and the schedule give telemetry's share of a run.

#include "cli/spin_briefly.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/bench/spread.h"
#include "lab/telemetry/health.h"
#include "lab/telemetry/recorder.h"
#include "lab/telemetry/timed_step.h"
#include "ops/loss/loss.h"
#include "ops/shape/copy.h"
#include "train/recipe.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace norma;
namespace bench = lab::bench;

enum Look { kNone, kTimed, kHealth };

class Network {
 public:
  explicit Network(const train::Recipe& recipe)
      : precision_(train::precision_of(recipe)),
        model_(train::make_model(recipe, /* num_classes= */ 1000)),
        optimizer_(train::make_optimizer(recipe, *model_)),
        table_(*model_) {
    Generator random(recipe.seed);
    const MemoryFormat format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
    images_ = to(randn({recipe.batch_size, 3, recipe.image_size, recipe.image_size}, {}, random), format);
    labels_ = randint(0, 1000, {recipe.batch_size}, {.dtype = DType::int64}, random);
  }

  /// Seconds of one step.
  double step(Look look) {
    synchronize(default_device());
    const auto start = bench::Clock::now();
    {
      const auto seen = observed(look);
      optimizer_->zero_grad();
      Tensor loss;
      {
        const train::PrecisionScope scope(precision_);
        const Tensor logits = (*model_)(train::convert_input(images_, precision_));
        loss = cross_entropy(to(logits, compute_dtype(logits.dtype())), labels_);
      }
      if (seen) {
        seen->after_forward(loss, 1);
      }
      loss.backward();
      if (seen) {
        seen->after_backward();
      }
      optimizer_->step();
      if (seen) {
        seen->after_update();
      }
    }
    synchronize(default_device());
    return bench::seconds_between(start, bench::Clock::now());
  }

 private:
  std::unique_ptr<train::ObservedStep> observed(Look look) {
    switch (look) {
      case kNone: return nullptr;
      case kTimed: return std::make_unique<lab::TimedStep>(table_, [](const lab::StepFindings&) {});
      case kHealth: return std::make_unique<lab::HealthStep>(table_, 1, [](const lab::HealthSample&) {});
    }
    return nullptr;
  }

  train::Precision precision_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  lab::LayerTable table_;
  Tensor images_;
  Tensor labels_;
};

void measure(const train::Recipe& recipe, uint64_t rounds, const std::vector<int64_t>& lengths) {
  Network network(recipe);
  for (const Look look : {kNone, kTimed, kHealth}) {
    network.step(look);  // not counted: it makes memory and kernels
  }
  std::array<std::vector<double>, 3> seconds;
  std::vector<double> more_timed;
  std::vector<double> more_health;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (const size_t look : bench::turn_order(3, round)) {
      seconds[look].push_back(network.step(static_cast<Look>(look)));
    }
    more_timed.push_back(seconds[kTimed].back() / seconds[kNone].back() - 1);
    more_health.push_back(seconds[kHealth].back() / seconds[kNone].back() - 1);
  }
  const double timed = bench::spread_of(more_timed).median;
  const double health = bench::spread_of(more_health).median;
  fmt::print("{} with {}, batch {}, {}x{}, {}: a step takes {:.2f} ms; timed {:+.2f} %, numbers looked at {:+.2f} %\n",
             recipe.model, recipe.norm.empty() ? "its own norm" : recipe.norm, recipe.batch_size, recipe.image_size,
             recipe.image_size, recipe.channels_last ? "channels_last" : "contiguous",
             1e3 * bench::spread_of(seconds[kNone]).median, 100 * timed, 100 * health);
  for (const int64_t steps : lengths) {
    const lab::TelemetrySchedule schedule(steps);
    const double more =
        static_cast<double>(schedule.timed().size()) * timed + static_cast<double>(schedule.health().size()) * health;
    fmt::print("  of a run of {} steps ({} timed, {} looked at): {:.3f} %\n", steps, schedule.timed().size(),
               schedule.health().size(), 100 * more / static_cast<double>(steps));
  }
}

}  // namespace

int main(int argc, char** argv) {
  spin_briefly(argv);
  train::Recipe recipe{.model = "resnet50", .image_size = 32, .batch_size = 128, .lr = 1e-4};
  uint64_t rounds = 15;
  std::vector<int64_t> lengths = {50, 200, 1000, 10000};
  std::string norm = "batch";
  CLI::App app("Measures what telemetry costs, by turns.");
  app.add_option("--model", recipe.model)->capture_default_str();
  app.add_option("--norm", norm)->capture_default_str();
  app.add_option("-b,--batch-size", recipe.batch_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--img-size", recipe.image_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_flag("--channels-last,!--no-channels-last", recipe.channels_last, "on by default");
  app.add_option("--rounds", rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--steps", lengths, "lengths of runs")->delimiter(',')->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  recipe.norm = norm;
  try {
    if (recipe.model.starts_with("resnet")) {
      recipe.small_stem = recipe.image_size < 64;
    }
    measure(recipe, rounds, lengths);
  } catch (const std::exception& error) {
    fmt::print(stderr, "telemetry_cost: {}\n", error.what());
    return 1;
  }
  return 0;
}
