#include "train/trainer.h"

#include "core/allocator.h"
#include "core/copy.h"
#include "core/error.h"
#include "core/random.h"
#include "core/tape.h"
#include "nn/cast_policy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "train/dataset_notes.h"
#include "train/interrupt.h"
#include "train/largest_batch.h"
#include "train/output.h"
#include "train/ranges.h"
#include "train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <utility>

namespace norma::train {

namespace {

/// Steps whose time is not counted: kernels are being generated and memory is being fetched.
constexpr size_t kWarmupSteps = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct StepTime {
  double seconds;
  int64_t images;
};

/// Images per second from the times of all steps so far. Each counts by itself: the last one of an epoch may be
/// shorter.
double rate(const std::vector<StepTime>& steps) {
  const size_t skipped = steps.size() > 2 * kWarmupSteps ? kWarmupSteps : 0;
  std::vector<double> seconds_per_image;
  for (size_t i = skipped; i < steps.size(); ++i) {
    seconds_per_image.push_back(steps[i].seconds / static_cast<double>(steps[i].images));
  }
  const double typical = median(std::move(seconds_per_image));
  return typical > 0 ? 1 / typical : 0;
}

/// Images per second over the last steps, for the display.
double recent_rate(const std::vector<StepTime>& steps) {
  constexpr size_t kWindow = 20;
  StepTime sum{};
  for (size_t i = steps.size() - std::min(kWindow, steps.size()); i < steps.size(); ++i) {
    sum.seconds += steps[i].seconds;
    sum.images += steps[i].images;
  }
  return sum.seconds > 0 ? static_cast<double>(sum.images) / sum.seconds : 0;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Trainer::Trainer(Recipe recipe, TrainerOptions options) : recipe_(std::move(recipe)), options_(std::move(options)) {
  check_recipe(recipe_);
  check_training(recipe_);
  check_range("train", "workers", options_.workers, ranges::kWorkers);
  check(options_.log_interval >= 0, "train", "log-interval: expected at least 0, got {}", options_.log_interval);
  precision_ = precision_of(recipe_);
  train_set_ = make_dataset(recipe_, data::Split::train);
  test_set_ = make_dataset(recipe_, data::Split::test);
  class_names_ = class_names_text(train_set_->info());
  model_ = make_model(recipe_, train_set_->info().num_classes());
  device_ = model_->device();
  optimizer_ = make_optimizer(recipe_, *model_);
  const data::Loader loader = make_train_loader(recipe_, train_set_, /* workers= */ 0);
  plan_ = {.batches_per_epoch = loader.batches_per_epoch(),
           .total_batches = loader.num_steps(),
           .accumulate = recipe_.grad_accum_steps};
  total_steps_ = plan_.total_steps();
  steps_per_epoch_ = plan_.steps_per_epoch();
  if (precision_.scales_gradients()) {
    scaler_.emplace();
  }
  schedules_ = make_schedules(recipe_, total_steps_, steps_per_epoch_);
  if (recipe_.model_ema) {
    ema_.emplace(EmaOptions{.decay = recipe_.model_ema_decay, .warmup = recipe_.model_ema_warmup});
  }
  random_ = Generator(recipe_.seed);
  if (!options_.output.empty()) {
    make_output_folder("train", options_.output);
  }
}

void Trainer::enter(std::string_view stage) const {
  if (options_.before_stage) {
    options_.before_stage(stage);
  }
  if (lock_ && stage != "step") {
    lock_->check_in_place();
  }
}

Tensor Trainer::accumulate_gradients(int64_t batches, const NextBatch& next, std::unique_ptr<ObservedStep>* seen) {
  const Tf32Guard tf32(precision_.tf32);  // backward too
  Tensor total;
  for (int64_t i = 0; i < batches; ++i) {
    const data::Batch batch = next();
    if (seen != nullptr && i + 1 == batches && options_.observer) {  // forward and backward are those of one batch
      *seen = options_.observer->begin_step(step_ + 1);
    }
    ObservedStep* const observed = seen != nullptr ? seen->get() : nullptr;
    Tensor loss;
    {
      const PrecisionScope scope(precision_);
      const Tensor logits = (*model_)(convert_input(to_device(batch.images, device_), precision_));
      const DType dtype = compute_dtype(logits.dtype());
      const Tensor target = batch.targets.defined() ? to(to_device(batch.targets, device_), dtype)  // of mixed images
                                                    : to_device(batch.labels, device_);
      loss = training_loss(recipe_, to(logits, dtype), target);
    }
    if (batches > 1) {  // gradients add up, to that of the mean
      loss = div(loss, static_cast<double>(batches));
    }
    if (observed != nullptr) {
      observed->after_forward(loss, scaler_ ? scaler_->factor() : 1);
    }
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    if (observed != nullptr) {
      observed->after_backward();
    }
    const Tensor part = batches > 1 ? to(loss.detach(), DType::float64) : loss.detach();
    total = total.defined() ? add(total, part) : part;
  }
  return total;
}

double Trainer::train_step(int64_t batches, const NextBatch& next) {
  optimizer_->set_lr(lr(step_));
  if (schedules_.momentum) {
    optimizer_->set_momentum(schedules_.momentum(step_));
  }
  if (steps_may_be_left_out()) {
    buffers_.take(*model_);
  }
  optimizer_->zero_grad();
  default_generator() = random_;  // whatever else has drawn from it since the step before
  std::unique_ptr<ObservedStep> seen;
  const Tensor total = accumulate_gradients(batches, next, &seen);
  // The only place of a step where the host waits for the device. The update must wait for it: what is wrong can only
  // be found with the weights that it came from.
  const auto [value, gradients_finite] = look_at(total);
  const bool finite = std::isfinite(value) && gradients_finite;
  if (scaler_ && std::isfinite(value)) {
    optimizer_->set_grad_scale(scaler_->factor());
    scaler_->update(finite);
    if (!finite) {
      leave_out_overflow();
      return value;
    }
  }
  if (!finite) {
    leave_out(value);
    return value;
  }
  left_out_in_row_ = 0;
  outcome_ = StepOutcome::updated;
  clip_gradients(recipe_, *model_, *optimizer_);
  optimizer_->step();
  if (ema_) {
    ema_->update(wide_state(), optimizer_->steps());
  }
  if (seen) {
    seen->after_update();
  }
  random_ = default_generator();
  return value;
}

void Trainer::fail_for_memory(const std::string& reason) {
  const auto seen = std::make_shared<ActivationObserver>();
  seen->start({.model = *model_, .first_step = step_, .total_steps = total_steps_, .batch_size = recipe_.batch_size});
  options_.observer = seen;  // the steps that follow are not of the run
  int64_t images = 0;
  const auto fits = [&](const data::Batch& batch) {
    optimizer_->zero_grad();
    train_step(1, [&] { return batch; });
    images = batch.labels.numel();
  };
  std::string largest = largest_batch_text(recipe_, options_.workers, device_, fits);
  if (images > 0 && !options_.resumed.empty()) {
    largest += ", in a new run: one that goes on keeps its batch size";
  }
  MemoryUse use = memory_use(*model_, *optimizer_, ema_);
  use.images = images;
  use.activations = images > 0 ? seen->activations() : std::vector<LayerBytes>();
  throw OutOfMemory(fmt::format("train: batch-size: {} images do not fit into memory ({}){}; a step holds {}",
                                recipe_.batch_size, reason, largest, to_string(use.for_images(recipe_.batch_size))));
}

std::string Trainer::labelled(const std::string& text) const {
  return options_.label.empty() ? text : fmt::format("{}  {}", options_.label, text);
}

double Trainer::now() const {
  return options_.clock ? options_.clock()
                        : std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Trainer::has_last() const {
  try {
    return options_.output.empty() || load_checkpoint_metadata(checkpoint_file()).step == step_;
  } catch (const Error&) {
    return false;
  }
}

TrainResult Trainer::run() {
  const auto start = std::chrono::steady_clock::now();
  struct Release {
    std::shared_ptr<const FolderLock>& lock;
    ~Release() { lock.reset(); }
  } const release{lock_};
  if (!options_.output.empty()) {
    lock_ = options_.lock ? options_.lock : std::make_shared<FolderLock>("train", options_.output);
    check_checkpoints_are_kept(options_.output, options_.resumed, step_);
    if (best_ && !path_exists("train", options_.output / kBestName)) {
      best_.reset();  // its weights are elsewhere
    }
    if (options_.keep.recovery_interval > 0) {
      remove_old_recovery(options_.output, options_.keep);
    }
    open_log();
    if (precision_.autocast) {
      constexpr std::string_view kHead = "# Cast policy of a run of 'norma train'\n";
      const std::filesystem::path file = options_.output / "cast_policy.toml";
      check_replaceable("train", file, "the cast policy of a training run",
                        [&](std::string_view beginning) { return beginning.starts_with(kHead); });
      lock_->write_text(file.filename(), fmt::format("{}{}", kHead, nn::to_text(precision_.policy)));
    }
    if (!options_.arguments.empty()) {
      const std::filesystem::path file = options_.output / "args.toml";
      check_replaceable("train", file, "the options of a training run", [this](std::string_view beginning) {
        return beginning.substr(0, beginning.find('\n')) ==
               std::string_view(options_.arguments).substr(0, options_.arguments.find('\n'));
      });
      lock_->write_text(file.filename(), options_.arguments);
    }
  }
  TrainResult result;
  result.total_steps = total_steps_;
  result.parameters = model_->parameter_count();
  model_->train();
  allocator(device_).reset_peak();
  ResidentPeak resident;

  Progress progress({.label = options_.label,
                     .total_steps = total_steps_,
                     .first_step = step_,
                     .log_interval = options_.log_interval,
                     .quiet = options_.quiet,
                     .time_after = options_.time_after});
  if (const std::string text = empty_classes_text(test_set_->info()); !text.empty()) {
    progress.print(text);
  }
  if (step_ == total_steps_ && !has_last()) {  // it goes on from another checkpoint, and makes none of its own
    save();
  }
  // The run ended between its last checkpoint and the row of that step.
  if ((loss_steps_ > 0 || left_out_in_row_ > 0) && !row_written_) {
    report_step(result, progress, /* images_per_second= */ 0);
  }
  if (step_ < total_steps_ && !interrupted()) {
    try {
      train(result, progress, resident);
    } catch (const OutOfMemory& error) {
      fail_for_memory(error.what());
    } catch (const std::bad_alloc&) {
      fail_for_memory("the system has none left");
    }
  }
  if (options_.evaluate && !interrupted() && !result.test.complete) {  // a run that was complete but for its evaluation
    evaluate_into(result);
  }
  if (interrupted()) {
    save();
  }
  if (left_out_ > 0) {
    const std::string text =
        fmt::format("{} of {} steps left out, whose loss or gradients were not finite", left_out_, step_);
    progress.print(labelled(text));
  }
  if (overflows_ > 0) {
    const std::string text =
        fmt::format("{} step{} left out, whose gradients overflowed in float16; the loss scale is {}", overflows_,
                    overflows_ == 1 ? " was" : "s were", scaler_->factor());
    progress.print(labelled(text));
  }
  for (const auto& dataset : {train_set_, test_set_}) {
    if (const std::string text = skipped_text(*dataset); !text.empty()) {
      progress.warn("norma: train: warning: " + labelled(text));
    }
  }
  result.best = best_;
  result.step = step_;
  result.left_out = left_out_;
  result.finished = step_ == total_steps_ && (result.test.complete || !options_.evaluate);
  result.peak_bytes = allocator(device_).statistics().peak_allocated;
  result.peak_resident = resident.bytes();
  result.seconds = seconds_since(start);
  return result;
}

void Trainer::train(TrainResult& result, Progress& progress, ResidentPeak& resident) {
  data::Loader loader = make_train_loader(recipe_, train_set_, options_.workers, plan_.batches_before(step_));
  const int64_t images_per_step = recipe_.batch_size * recipe_.grad_accum_steps;
  if (options_.observer) {
    options_.observer->start(
        {.model = *model_, .first_step = step_, .total_steps = total_steps_, .batch_size = images_per_step});
  }
  std::vector<StepTime> times;
  LoadingWatch loading(options_.workers);
  bool warned = false;
  double waited = 0;
  const auto load = [&] {
    const double start = now();
    std::optional<data::Batch> batch = loader.next();
    waited += now() - start;
    return batch;
  };
  double step_start = now();
  while (step_ < total_steps_) {
    waited = 0;
    std::optional<data::Batch> first = load();
    enter("step");
    const double loss = train_step(plan_.batches_of(step_),
                                   [&] { return first ? *std::exchange(first, std::nullopt) : load().value(); });
    ++step_;
    times.push_back({.seconds = now() - step_start, .images = plan_.batches_of(step_ - 1) * recipe_.batch_size});
    loading.add(times.back().images, times.back().seconds, waited);
    if (const auto rates = loading.bottleneck(); rates && !std::exchange(warned, true)) {
      progress.print(loading_warning(*rates, options_.workers));
    }
    if (options_.observer && outcome_ == StepOutcome::updated) {
      options_.observer->end_step(step_, loss, times.back().seconds);
    }
    resident.sample();  // the allocator keeps what a step has freed, so the end of a step shows its peak
    result.losses.push_back(loss);
    add_to_rows(loss);
    if (outcome_ == StepOutcome::left_out) {
      progress.print(fmt::format("step {}: the loss is {}, {}; left out ({} so far)", step_, loss,
                                 std::isfinite(loss) ? "and a gradient is not finite" : "not finite", left_out_));
    }
    const double recent = recent_rate(times);
    progress.update({.step = step_, .images_per_second = recent, .loss = loss});

    if (step_ == total_steps_ || step_ % steps_per_epoch_ == 0 || interrupted()) {
      save();  // before the evaluation, which may take long
    } else if (options_.keep.recovery_interval > 0 && step_ % options_.keep.recovery_interval == 0) {
      save_for_recovery();
    }
    report_step(result, progress, recent);
    if (interrupted()) {
      break;
    }
    step_start = now();
  }
  result.images_per_second = rate(times);
}

}  // namespace norma::train
