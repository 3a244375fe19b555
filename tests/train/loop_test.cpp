#include "train/loop.h"

#include "error_text.h"
#include "small_runs.h"
#include "support.h"
#include "train/processes.h"

#include <doctest/doctest.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::train;

namespace {

class Recorder final : public LoopObserver {
 public:
  explicit Recorder(const TrainingState& run) : run_(run) {}

  void before_step() override { calls.push_back("before step " + std::to_string(run_.step + 1)); }
  void after_step(const StepEvent& step) override {
    calls.push_back("after step " + std::to_string(run_.step));
    events.push_back(step);
    if (then) {
      then();
    }
  }

  std::vector<std::string> calls;
  std::vector<StepEvent> events;
  std::function<void()> then;  // called after each step

 private:
  const TrainingState& run_;
};

/// Three steps of four images.
class SmallLoop {
 public:
  SmallLoop() { run.model->train(); }
  int64_t operator()(const LoopOptions& options = {.workers = 0}) { return train_loop(run, faults, options, seen); }

  TrainingState run{test::small_recipe()};
  StepFaults faults{run};
  Recorder seen{run};
};

}  // namespace

TEST_CASE("loop: it makes the steps that train_step() makes, and tells of each") {
  SmallLoop loop;
  double now = 0;
  const volatile float small = 1e-20F;
  const bool can = set_flush_denormal(true);
  set_flush_denormal(false);
  bool flushes = true;
  loop.seen.then = [&] { flushes = flushes && small * small == 0; };
  CHECK(loop({.workers = 0, .clock = [&] { return now += 1; }}) == 0);
  CHECK(flushes == can);
  CHECK(small * small > 0);
  CHECK(loop.run.step == 3);
  CHECK(loop.seen.calls == std::vector<std::string>{"before step 1", "after step 1", "before step 2", "after step 2",
                                                    "before step 3", "after step 3"});
  SmallLoop by_hand;
  data::Loader loader = make_train_loader(by_hand.run.recipe, by_hand.run.train_set, 0);
  for (const StepEvent& step : loop.seen.events) {
    CHECK(step.images == 4);
    CHECK(step.waited == 1);   // between two looks at the clock
    CHECK(step.seconds == 3);  // and one look at the end
    const StepResult same = train_step(by_hand.run, by_hand.faults, 1, [&] { return loader.next().value(); });
    ++by_hand.run.step;
    CHECK(step.result.loss == same.loss);
  }
  const nn::NamedTensors weights = loop.run.model->state_dict();
  const nn::NamedTensors expected = by_hand.run.model->state_dict();
  for (size_t i = 0; i < weights.size(); ++i) {
    CHECK_MESSAGE(test::max_difference(weights[i].second, expected[i].second) == 0, weights[i].first);
  }
}

TEST_CASE("loop: whoever asks for the end gets it after the step at hand") {
  SmallLoop loop;
  loop.seen.then = [&] {
    if (loop.run.step == 2) {
      StopFlag::ask(SIGTERM);
    }
  };
  loop();
  CHECK(loop.run.step == 2);
  CHECK(interrupting_signal() == SIGTERM);
  CHECK_FALSE(StopFlag::ask(SIGINT));
  CHECK(interrupting_signal() == SIGTERM);
  StopFlag::withdraw();
  CHECK_FALSE(interrupted());
  loop.seen.then = {};
  loop();
  CHECK(loop.run.step == 3);
}

TEST_CASE("loop: what cannot be is an error before the first step") {
  SmallLoop loop;
  CHECK(test::error_of([&] { loop({.workers = 0, .cuda_graph = GraphMode::on}); }) ==
        "train: cuda-graph: expected steps that become a graph, but cpu has no graphs");
  CHECK(loop.seen.calls.empty());
}
