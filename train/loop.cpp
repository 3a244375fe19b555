#include "train/loop.h"

#include "base/error.h"
#include "core/upload.h"
#include "data/loader.h"
#include "train/stop.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

namespace norma::train {

namespace {

/// The batches of a run with their images on the device. They travel there while the device makes the step before,
/// where it can do both.
class BatchFeed {
 public:
  using Load = std::function<std::optional<data::Batch>()>;

  /// `load` gives the next batch, or none at the end. While it lives, `steps` sends batches when it waits for the
  /// device.
  BatchFeed(StepFaults& steps, Device device, Load load) : steps_(steps), load_(std::move(load)), upload_(device) {
    steps_.set_before_waiting([this] { send_next(); });
  }
  ~BatchFeed() { steps_.set_before_waiting(nullptr); }
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  /// The next batch; none at the end.
  std::optional<data::Batch> next() {
    if (!std::exchange(sent_, false)) {
      return take();
    }
    if (failed_) {
      std::rethrow_exception(std::exchange(failed_, nullptr));
    }
    return std::exchange(next_, std::nullopt);
  }

 private:
  /// The device has the work of a step, and the host is about to wait for it. Does nothing where the device's copies
  /// are done at once. An error of it is thrown by next(), since the step under way is whole.
  void send_next() {
    if (upload_.is_beside() && !sent_) {
      sent_ = true;
      try {
        next_ = take();
      } catch (...) {
        failed_ = std::current_exception();
      }
    }
  }

  std::optional<data::Batch> take() {
    std::optional<data::Batch> batch = load_();
    if (batch && upload_.is_beside()) {
      batch->images = upload_(batch->images);
    }
    return batch;
  }

  StepFaults& steps_;
  Load load_;
  Upload upload_;
  bool sent_ = false;
  std::optional<data::Batch> next_;  // with sent_
  std::exception_ptr failed_;        // with sent_, or null
};

/// The maker of graphs, or none, as the options and the run will have it.
std::optional<StepGraph> make_graph(TrainingState& run, StepFaults& faults, const LoopOptions& options,
                                    LoopObserver& observer) {
  if (options.cuda_graph == GraphMode::off) {
    return std::nullopt;
  }
  const std::string obstacle = StepGraph::obstacle(run, options.steps);
  if (obstacle.empty()) {
    return std::optional<StepGraph>(std::in_place, run, faults, options.cuda_graph);
  }
  check(options.cuda_graph != GraphMode::on, "train", "cuda-graph: expected steps that become a graph, but {}",
        obstacle);
  if (make_device_graph(run.model->device()) != nullptr) {
    observer.note(fmt::format("cuda-graph: off: {}", obstacle));
  }
  return std::nullopt;
}

}  // namespace

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t train_loop(TrainingState& run, StepFaults& faults, const LoopOptions& options, LoopObserver& observer) {
  const Device device = run.model->device();
  data::Loader loader = make_train_loader(run.recipe, run.train_set, options.workers, run.plan.batches_before(run.step),
                                          device, run.processes.part());
  double waited = 0;  // in this step
  BatchFeed feed(faults, device, [&] {
    const double start = options.clock();
    std::optional<data::Batch> batch = loader.next();
    waited += options.clock() - start;
    return batch;
  });
  std::optional<StepGraph> graph = make_graph(run, faults, options, observer);
  double start = options.clock();
  while (run.step < run.total_steps() && !interrupted()) {
    waited = 0;
    std::optional<data::Batch> first = feed.next();
    observer.before_step();
    const int64_t batches = run.plan.batches_of(run.step);
    const auto next = [&] { return first ? *std::exchange(first, std::nullopt) : feed.next().value(); };
    const StepResult result =
        graph ? graph->step(batches, next) : train_step(run, faults, batches, next, options.steps);
    ++run.step;
    if (const std::string news = graph ? graph->take_news() : ""; !news.empty()) {
      observer.note(news);
    }
    const double seconds = options.clock() - start;
    if (graph && run.epoch_ends()) {
      graph->release();
    }
    observer.after_step(
        {.result = result, .images = batches * run.recipe.batch_size, .seconds = seconds, .waited = waited});
    start = options.clock();
  }
  return graph ? graph->launches() : 0;
}

}  // namespace norma::train
