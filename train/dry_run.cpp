#include "train/dry_run.h"

#include "core/allocator.h"
#include "train/trainer.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace norma::train {

double Trainer::loading_seconds(data::Loader& loader) const {
  const int64_t batches = prefetched_batches(options_.workers);
  for (int64_t i = 0; i < batches; ++i) {  // those that are ready or half done
    loader.next();
  }
  const double start = now();
  int64_t loaded = 0;
  while (loaded < batches && loader.next()) {
    ++loaded;
  }
  return loaded == 0 ? 0
                     : (now() - start) * static_cast<double>(recipe_.grad_accum_steps) / static_cast<double>(loaded);
}

DryRun Trainer::dry_run() {
  constexpr int64_t kFirstSteps = 2;
  constexpr int64_t kTimedSteps = 3;
  constexpr int64_t kTestBatches = 2;
  DryRun result;
  result.steps_left = total_steps_ - step_;
  result.images_per_step = recipe_.batch_size * recipe_.grad_accum_steps;
  const int64_t epochs_left = total_steps_ / steps_per_epoch_ - step_ / steps_per_epoch_;
  result.evaluations = !options_.evaluate
                           ? 0
                           : (options_.evaluate_each_epoch ? epochs_left : 0) +
                                 (options_.evaluate_each_epoch && total_steps_ % steps_per_epoch_ == 0 ? 0 : 1);
  model_->train();
  allocator(device_).reset_peak();
  const auto seen = std::make_shared<ActivationObserver>();
  seen->start({.model = *model_, .first_step = step_, .total_steps = total_steps_, .batch_size = recipe_.batch_size});
  data::Loader loader = make_train_loader(recipe_, train_set_, options_.workers, plan_.batches_before(step_));
  std::vector<double> seconds;
  std::vector<double> computing;
  double waited = 0;
  const auto next = [&] {
    const double start = now();
    data::Batch batch = loader.next().value();
    waited += now() - start;
    return batch;
  };
  const int64_t first = step_;
  try {
    for (; step_ < std::min(first + kFirstSteps + kTimedSteps, total_steps_); ++step_) {
      options_.observer = step_ == first ? seen : nullptr;  // what it does takes no part in the time
      waited = 0;
      const double start = now();
      train_step(plan_.batches_of(step_), next);
      (step_ - first < kFirstSteps ? result.first_steps : result.timed_steps) += 1;
      seconds.push_back(now() - start);
      computing.push_back(seconds.back() - waited);
    }
    step_ = first;
    result.peak_bytes = allocator(device_).statistics().peak_allocated;
    result.workers = options_.workers;
    result.loading_seconds = loading_seconds(loader);
  } catch (const OutOfMemory& error) {
    fail_for_memory(error.what());
  } catch (const std::bad_alloc&) {
    fail_for_memory("the system has none left");
  }
  if (result.timed_steps > 0) {
    seconds.erase(seconds.begin(), seconds.begin() + result.first_steps);
    computing.erase(computing.begin(), computing.begin() + result.first_steps);
  } else {
    std::swap(result.first_steps, result.timed_steps);
  }
  if (result.loading_seconds == 0) {
    result.step_seconds = median(seconds);
  } else if (result.workers == 0) {
    result.step_seconds = median(computing) + result.loading_seconds;
  } else {
    result.step_seconds = std::max(median(computing), result.loading_seconds);
  }
  result.memory = memory_use(*model_, *optimizer_, ema_);
  result.memory.images = recipe_.batch_size;
  result.memory.activations = seen->activations();

  const int64_t test_images =
      recipe_.test_images > 0 ? std::min(recipe_.test_images, test_set_->info().size) : test_set_->info().size;
  Recipe part = recipe_;
  part.test_images = std::min(test_images, kTestBatches * recipe_.batch_size);
  data::Loader batches = make_test_loader(part, test_set_, options_.workers);
  const Evaluation evaluation = evaluate(*model_, batches, precision_);
  result.evaluation_seconds = evaluation.seconds * static_cast<double>(test_images) /
                              static_cast<double>(std::max<int64_t>(evaluation.images, 1)) * (ema_ ? 2 : 1);
  result.seconds = result.step_seconds * static_cast<double>(result.steps_left) +
                   result.evaluation_seconds * static_cast<double>(result.evaluations);
  return result;
}

}  // namespace norma::train
