#include "train/trainer.h"

#include "core/allocator.h"
#include "core/error.h"
#include "core/random.h"
#include "core/tape.h"
#include "ops/loss/loss.h"
#include "train/interrupt.h"
#include "train/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace norma::train {

namespace {

constexpr const char* kRecipeKey = "recipe";

/// Steps whose time is not counted: kernels are being generated and memory is being fetched.
constexpr size_t kWarmupSteps = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Images per second from the times of all steps so far.
double rate(const std::vector<double>& step_seconds, int64_t batch_size) {
  const size_t skipped = step_seconds.size() > 2 * kWarmupSteps ? kWarmupSteps : 0;
  const double typical = median({step_seconds.begin() + static_cast<std::ptrdiff_t>(skipped), step_seconds.end()});
  return typical > 0 ? static_cast<double>(batch_size) / typical : 0;
}

/// Images per second over the last steps, for the display.
double recent_rate(const std::vector<double>& step_seconds, int64_t batch_size) {
  constexpr size_t kWindow = 20;
  const size_t count = std::min(kWindow, step_seconds.size());
  const double seconds =
      std::accumulate(step_seconds.end() - static_cast<std::ptrdiff_t>(count), step_seconds.end(), 0.0);
  return seconds > 0 ? static_cast<double>(batch_size) * static_cast<double>(count) / seconds : 0;
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

Recipe recipe_of(const Checkpoint& checkpoint) {
  const auto found = checkpoint.options.find(kRecipeKey);
  check(found != checkpoint.options.end(), "checkpoint", "expected the recipe of its run, got none");
  return recipe_from_json(found->second);
}

Trainer::Trainer(Recipe recipe, TrainerOptions options) : recipe_(std::move(recipe)), options_(std::move(options)) {
  check_recipe(recipe_);
  precision_ = precision_of(recipe_);
  const std::vector<std::string> precisions = training_precision_names();
  check(std::find(precisions.begin(), precisions.end(), recipe_.precision) != precisions.end(), "train",
        "precision: expected {}, got {}", fmt::join(precisions, ", "), recipe_.precision);
  train_set_ = make_dataset(recipe_, data::Split::train);
  test_set_ = make_dataset(recipe_, data::Split::test);
  model_ = make_model(recipe_, train_set_->info().num_classes());
  optimizer_ = make_optimizer(recipe_, *model_);
  const data::Loader loader = make_train_loader(recipe_, train_set_, /* workers= */ 0);
  total_steps_ = loader.num_steps();
  steps_per_epoch_ = loader.batches_per_epoch();
  schedules_ = make_schedules(recipe_, total_steps_, steps_per_epoch_);
  random_ = Generator(recipe_.seed);
  if (!options_.output.empty()) {
    make_output_folder("train", options_.output);
  }
}

Trainer::Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint)
    : Trainer(std::move(recipe), std::move(options)) {
  model_->load_state_dict(checkpoint.model);
  optimizer_->load_state_dict(checkpoint.optimizer);
  random_.set_state(checkpoint.generator_seed, checkpoint.generator_offset);
  step_ = checkpoint.step;
  check(step_ <= total_steps_, "train", "the checkpoint is at step {}, but the run has only {}", step_, total_steps_);
}

std::filesystem::path Trainer::checkpoint_file() const {
  return options_.output.empty() ? std::filesystem::path() : options_.output / "last.safetensors";
}

nn::NamedTensors Trainer::wide_state() const {
  const nn::NamedTensors masters = optimizer_->master_weights();
  const std::unordered_map<std::string, Tensor> by_name(masters.begin(), masters.end());
  nn::NamedTensors state = model_->state_dict();
  for (auto& [name, x] : state) {
    const auto found = by_name.find(name);
    x = found != by_name.end() ? found->second : widened(x);
  }
  return state;
}

Checkpoint Trainer::checkpoint() const {
  return {.model = wide_state(),
          .optimizer = optimizer_->state_dict(),
          .step = step_,
          .epoch = step_ / steps_per_epoch_,
          .seed = recipe_.seed,
          .generator_seed = random_.seed(),
          .generator_offset = random_.offset(),
          .model_name = recipe_.model,
          .norm = recipe_.norm,
          .options = {{kRecipeKey, to_json(recipe_)}}};
}

void Trainer::save() const {
  if (!options_.output.empty()) {
    save_checkpoint(checkpoint_file(), checkpoint());
  }
}

double Trainer::train_step(const data::Batch& batch) {
  optimizer_->set_lr(recipe_.lr * schedules_.lr(step_));
  if (schedules_.momentum) {
    optimizer_->set_momentum(schedules_.momentum(step_));
  }
  optimizer_->zero_grad();
  default_generator() = random_;  // whatever else has drawn from it since the step before
  Tensor loss;
  {
    const PrecisionScope scope(precision_);
    const Tensor logits = (*model_)(convert_input(batch.images, precision_));
    loss = cross_entropy(widened(logits), batch.labels, {.label_smoothing = recipe_.smoothing});
  }
  const double value = loss.to_vector<double>().front();
  check(std::isfinite(value), "train", "the loss became {} at step {}; a smaller learning rate may help (it is {})",
        value, step_ + 1, recipe_.lr);
  loss.backward();
  if (recipe_.clip_grad > 0) {
    nn::clip_gradients_by_norm(optimizer_->parameters(), recipe_.clip_grad);
  }
  optimizer_->step();
  random_ = default_generator();
  return value;
}

void Trainer::log(double images_per_second, const Evaluation& test) {
  if (!log_) {
    return;
  }
  Metrics metrics{.step = step_,
                  .epoch = static_cast<double>(step_) / static_cast<double>(steps_per_epoch_),
                  .images = step_ * recipe_.batch_size,
                  .lr = optimizer_->lr(),
                  .loss = unlogged_steps_ > 0 ? unlogged_loss_ / static_cast<double>(unlogged_steps_) : 0,
                  .images_per_second = images_per_second};
  if (test.complete) {
    metrics.test_loss = test.loss;
    metrics.test_accuracy = test.accuracy;
  }
  log_->write(metrics);
  unlogged_loss_ = 0;
  unlogged_steps_ = 0;
}

Evaluation Trainer::evaluate_now() {
  data::Loader batches = make_test_loader(recipe_, test_set_, options_.workers);
  return evaluate(*model_, batches, precision_);
}

TrainResult Trainer::run() {
  const auto start = std::chrono::steady_clock::now();
  if (!options_.output.empty()) {
    std::error_code none;
    check(!std::filesystem::exists(checkpoint_file()) ||
              std::filesystem::equivalent(checkpoint_file(), options_.resumed, none),
          "train", "'{}' is the checkpoint of another run: resume it, or choose another output folder",
          checkpoint_file().string());
    log_.emplace(options_.output / "metrics.csv", step_);
  }
  TrainResult result;
  result.total_steps = total_steps_;
  result.parameters = model_->parameter_count();
  model_->train();
  allocator(kCpu).reset_peak();
  ResidentPeak resident;

  Progress progress({.label = options_.label,
                     .total_steps = total_steps_,
                     .first_step = step_,
                     .log_interval = options_.log_interval,
                     .quiet = options_.quiet});
  if (step_ < total_steps_) {
    train(result, progress, resident);
  }
  if (!interrupted() && !result.test.complete) {  // a run that was complete but for its evaluation
    result.test = evaluate_now();
  }
  if (interrupted()) {
    save();
  }
  result.step = step_;
  result.finished = step_ == total_steps_ && result.test.complete;
  result.peak_bytes = allocator(kCpu).statistics().peak_allocated;
  result.peak_resident = resident.bytes();
  result.seconds = seconds_since(start);
  return result;
}

void Trainer::train(TrainResult& result, Progress& progress, ResidentPeak& resident) {
  data::Loader loader = make_train_loader(recipe_, train_set_, options_.workers, step_);
  std::vector<double> step_seconds;
  auto step_start = std::chrono::steady_clock::now();
  while (const auto batch = loader.next()) {
    const double loss = train_step(*batch);
    ++step_;
    step_seconds.push_back(seconds_since(step_start));
    resident.sample();  // the allocator keeps what a step has freed, so the end of a step shows its peak
    result.losses.push_back(loss);
    unlogged_loss_ += loss;
    ++unlogged_steps_;
    const double recent = recent_rate(step_seconds, recipe_.batch_size);
    progress.update({.step = step_, .images_per_second = recent, .loss = loss});

    const bool last = step_ == total_steps_;
    if (last || step_ % steps_per_epoch_ == 0) {
      save();  // before the evaluation, which may take long
      Evaluation test;
      if (!interrupted() && (last || options_.evaluate_each_epoch)) {
        test = evaluate_now();
        result.test = test;
        progress.print(fmt::format("{}{}after {} images: test accuracy {:.2f} %, test loss {:.4f}", options_.label,
                                   options_.label.empty() ? "" : "  ", step_ * recipe_.batch_size, 100 * test.accuracy,
                                   test.loss));
      }
      log(recent, test);
    } else if (options_.log_interval > 0 && step_ % options_.log_interval == 0) {
      log(recent, {});
    }
    if (interrupted()) {
      break;
    }
    step_start = std::chrono::steady_clock::now();
  }
  result.images_per_second = rate(step_seconds, recipe_.batch_size);
}

}  // namespace norma::train
