#include "train/loop.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "core/upload.h"
#include "data/loader.h"
#include "train/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>

namespace norma::train {

namespace {

bool lie_alike(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() &&
         (!a.defined() || (a.sizes() == b.sizes() && a.strides() == b.strides() && a.dtype() == b.dtype()));
}

Tensor on_device(const Tensor& x, Device device) {
  return x.defined() ? to_device(x, device) : x;
}

void set(const Tensor& x, const Tensor& to) {
  if (x.defined()) {
    copy_from_host(x, to);
  }
}

/// The batches of a run with their images on the device. They travel there while the device makes the step before,
/// where it can do both.
class BatchFeed : NotCopied {
 public:
  using Load = std::function<std::optional<data::Batch>()>;

  /// `load` gives the next batch, or none at the end. While it lives, `steps` sends batches when it waits for the
  /// device.
  BatchFeed(StepFaults& steps, Device device, Load load) : steps_(steps), load_(std::move(load)), upload_(device) {
    steps_.set_before_waiting([this] { send_next(); });
  }
  ~BatchFeed() { steps_.set_before_waiting(nullptr); }

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

std::vector<std::string> graph_mode_names() {
  return {"off", "on", "auto"};
}

GraphMode graph_mode_from_string(const std::string& name) {
  const std::vector<std::string> names = graph_mode_names();
  const auto found = std::ranges::find(names, name);
  check(found != names.end(), "train", "cuda-graph: {}", unknown_name("mode", name, names));
  return static_cast<GraphMode>(found - names.begin());
}

std::string StepGraph::obstacle(Device device, const nn::Optimizer* optimizer, const Recipe& recipe, bool alone) {
  if (make_device_graph(device) == nullptr) {
    return fmt::format("{} has no graphs", to_string(device));
  }
  if (!alone) {
    return "gradients travel between processes";
  }
  return optimizer != nullptr && !optimizer->can_be_recorded()
             ? fmt::format("the numbers of {} go to its kernels by value", recipe.opt)
             : "";
}

std::string StepGraph::obstacle(const TrainingState& run, const StepObserver* observer) {
  if (std::string found = obstacle(run.model->device(), run.optimizer.get(), run.recipe, run.processes.alone());
      !found.empty()) {
    return found;
  }
  if (run.ema && run.recipe.model_ema_decay == 0) {
    return "averages with a decay of 0 are made anew in each step";
  }
  return observer != nullptr && observer->looks_into_steps() ? "telemetry looks into single steps" : "";
}

StepGraph::StepGraph(TrainingState& run, StepFaults& faults, GraphMode mode)
    : run_(run), faults_(faults), mode_(mode) {}

StepResult StepGraph::step(int64_t batches, const NextBatch& next) {
  if (gave_up_ || updates_ < kWarmUp || batches != run_.recipe.grad_accum_steps) {
    return ordinary_step(batches, next);
  }
  std::vector<data::Batch> given;
  for (int64_t i = 0; i < batches; ++i) {
    given.push_back(next());
  }
  if (prepare(given)) {
    return launch();
  }
  auto batch = given.begin();
  return ordinary_step(batches, [&] { return *batch++; });
}

StepResult StepGraph::ordinary_step(int64_t batches, const NextBatch& next) {
  release();
  const StepResult result = train_step(run_, faults_, batches, next);
  updates_ += result.outcome == StepOutcome::updated ? 1 : 0;
  return result;
}

void StepGraph::release() {
  recorded_ = false;
  inputs_.clear();
  seen_ = {};
  graph_ = nullptr;
}

bool StepGraph::is_whole(const std::vector<data::Batch>& batches) const {
  return std::ranges::all_of(batches,
                             [&](const data::Batch& batch) { return batch.images.size(0) == run_.recipe.batch_size; });
}

bool StepGraph::fit(const std::vector<data::Batch>& batches) const {
  return std::ranges::equal(batches, inputs_, [](const data::Batch& a, const data::Batch& b) {
    return a.images.sizes() == b.images.sizes() && a.images.strides() == b.images.strides() &&
           lie_alike(a.labels, b.labels) && lie_alike(a.targets, b.targets);
  });
}

bool StepGraph::prepare(const std::vector<data::Batch>& batches) {
  if (recorded_ ? !fit(batches) : !is_whole(batches)) {
    return false;
  }
  try {
    set_inputs(batches);
    set_schedules(run_);
    set_numbers();
    if (const double loss_scale = run_.scaler ? run_.scaler->factor() : 1; !recorded_ || loss_scale != loss_scale_) {
      recorded_ = false;
      loss_scale_ = loss_scale;
      record();
      recorded_ = true;
    }
  } catch (const Error& error) {  // work that asks the host, or too little memory for a graph
    if (mode_ == GraphMode::on) {
      throw;
    }
    gave_up_ = true;
    news_ = fmt::format("cuda-graph: off: {}", error.what());
    return false;
  }
  if (!std::exchange(told_, true)) {
    news_ = fmt::format("cuda-graph: from step {} on a step is one graph of {} kernels and copies", run_.step + 1,
                        graph_->size());
  }
  return true;
}

void StepGraph::set_inputs(const std::vector<data::Batch>& batches) {
  if (!recorded_) {
    const Device device = run_.model->device();
    inputs_.clear();
    for (const data::Batch& batch : batches) {
      inputs_.push_back({.images = data::images_on(batch, device),
                         .labels = on_device(batch.labels, device),
                         .targets = on_device(batch.targets, device)});
    }
    return;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    copy_into(data::images_on(batches[i], run_.model->device()), inputs_[i].images);
    set(batches[i].labels, inputs_[i].labels);
    set(batches[i].targets, inputs_[i].targets);
  }
}

void StepGraph::set_numbers() {
  run_.optimizer->set_numbers();
  if (run_.ema) {
    run_.ema->set_share(run_.optimizer->steps() + 1);
  }
  if (!random_origin_.defined()) {
    random_origin_ = empty({}, {.dtype = DType::int64, .device = run_.model->device()});
  }
  const std::vector<int64_t> origin{static_cast<int64_t>(run_.random.offset())};
  copy_from_host(from_vector(origin, {}, {.dtype = DType::int64, .device = kCpu}), random_origin_);
}

void StepGraph::record() {
  // Each launch converts the weights, into memory of the graph. Ordinary steps have none of it, nor take a conversion
  // for done that was only recorded.
  struct OwnCasts {
    explicit OwnCasts(CastCache& of_run) : casts(of_run) { casts = {}; }
    ~OwnCasts() { casts = {}; }
    CastCache& casts;
  };
  const OwnCasts own_casts(run_.casts);
  if (run_.scaler) {
    run_.optimizer->set_grad_scale(run_.scaler->factor());
  }
  if (graph_ == nullptr) {
    graph_ = make_device_graph(run_.model->device());
  }
  graph_->record([&] {
    faults_.begin_step();
    run_.optimizer->zero_grad();
    Generator counting(run_.random.seed());
    counting.set_origin(reinterpret_cast<const uint64_t*>(random_origin_.device_pointer<int64_t>()));
    default_generator() = counting;
    auto batch = inputs_.begin();
    const Tensor loss = accumulate_gradients(run_, static_cast<int64_t>(inputs_.size()), [&] { return *batch++; });
    seen_ = faults_.look_at(loss);
    clip_gradients(run_.recipe, *run_.model, *run_.optimizer);
    run_.optimizer->record_step(seen_);
    if (run_.ema) {
      run_.ema->record_update(run_.wide_state(), seen_);
    }
  });
  draws_ = default_generator().offset();
}

StepResult StepGraph::launch() {
  graph_->launch();
  ++launches_;
  default_generator() = run_.random;
  default_generator().reserve(draws_);
  for (const auto& [name, buffer] : run_.model->named_buffers()) {
    buffer.bump_version();
  }
  const StepResult result = faults_.judge(seen_);
  if (result.outcome == StepOutcome::updated) {
    run_.optimizer->count_launched_step();
    if (run_.ema) {
      for (const auto& [name, average] : run_.ema->averages()) {
        average.bump_version();
      }
    }
    run_.random = default_generator();
  }
  return result;
}

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t train_loop(TrainingState& run, StepFaults& faults, const LoopOptions& options, LoopObserver& observer) {
  const FlushDenormalGuard flush;  // before the loader starts threads: the number of workers changes no bits
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
