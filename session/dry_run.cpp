#include "session/trainer.h"

#include "core/allocator.h"
#include "session/step_times.h"
#include "train/memory_use.h"
#include "train/training_step.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

/// Seconds to load the images of a step, measured with a loader whose batches nobody computes with; 0 if the run has
/// too few of them to tell.
double loading_seconds(data::Loader& loader, const TrainerOptions& options, int64_t batches_of_step) {
  const int64_t batches = prefetched_batches(options.workers);
  for (int64_t i = 0; i < batches; ++i) {  // batches that are ready or half done
    loader.next();
  }
  const double start = options.now();
  int64_t loaded = 0;
  while (loaded < batches && loader.next()) {
    ++loaded;
  }
  return loaded == 0 ? 0 : (options.now() - start) * static_cast<double>(batches_of_step) / static_cast<double>(loaded);
}

int64_t evaluations_left(const TrainingState& run, const TrainerOptions& options) {
  if (!options.evaluate) {
    return 0;
  }
  if (!options.evaluate_each_epoch) {
    return 1;
  }
  const int64_t epochs_left = run.total_steps() / run.steps_per_epoch() - run.step / run.steps_per_epoch();
  return epochs_left + (run.total_steps() % run.steps_per_epoch() == 0 ? 0 : 1);
}

}  // namespace

DryRun Trainer::dry_run() {
  constexpr int64_t kFirstSteps = 2;
  constexpr int64_t kTimedSteps = 3;
  constexpr int64_t kTestBatches = 2;
  TrainingState& run = state_;
  const Recipe& recipe = run.recipe;
  DryRun result;
  result.steps_left = run.total_steps() - run.step;
  result.images_per_step = recipe.batch_size * recipe.grad_accum_steps;
  result.evaluations = evaluations_left(run, options_);
  result.workers = options_.workers;
  run.model->train();
  Allocator& memory = allocator(run.model->device());
  memory.reset_peak();
  ActivationObserver seen(*run.model);
  data::Loader loader = make_train_loader(recipe, run.train_set, options_.workers, run.plan.batches_before(run.step),
                                          run.model->device());
  std::vector<double> seconds;
  std::vector<double> computing;
  double waited = 0;
  const auto next = [&] {
    const double start = options_.now();
    data::Batch batch = loader.next().value();
    waited += options_.now() - start;
    return batch;
  };
  StepFaults faults(run);
  faults.explain_memory(options_.workers, !options_.resumed.empty(), [&] {
    const int64_t first = run.step;
    for (; run.step < std::min(first + kFirstSteps + kTimedSteps, run.total_steps()); ++run.step) {
      StepObserver* const observer = run.step == first ? &seen : nullptr;  // its work does not count as time
      waited = 0;
      const double start = options_.now();
      train_step(run, faults, run.plan.batches_of(run.step), next, observer);
      (run.step - first < kFirstSteps ? result.first_steps : result.timed_steps) += 1;
      seconds.push_back(options_.now() - start);
      computing.push_back(seconds.back() - waited);
    }
    run.step = first;
    result.peak_bytes = memory.statistics().peak_allocated;
    result.loading_seconds = loading_seconds(loader, options_, recipe.grad_accum_steps);
  });
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
  result.memory = memory_use(*run.model, *run.optimizer, run.ema);
  result.memory.images = recipe.batch_size;
  result.memory.activations = seen.activations();

  const int64_t test_images =
      recipe.test_images > 0 ? std::min(recipe.test_images, run.test_set->info().size) : run.test_set->info().size;
  Recipe part = recipe;
  part.test_images = std::min(test_images, kTestBatches * recipe.batch_size);
  data::Loader batches = make_test_loader(part, run.test_set, options_.workers, run.model->device());
  const Evaluation evaluation = evaluate(*run.model, batches, run.precision);
  result.evaluation_seconds = evaluation.seconds * static_cast<double>(test_images) /
                              static_cast<double>(std::max<int64_t>(evaluation.images, 1)) * (run.ema ? 2 : 1);
  result.seconds = result.step_seconds * static_cast<double>(result.steps_left) +
                   result.evaluation_seconds * static_cast<double>(result.evaluations);
  return result;
}

}  // namespace norma::train
