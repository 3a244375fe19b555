#include "train/run_evaluation.h"

#include "data/subset.h"

#include <algorithm>
#include <utility>

namespace norma::train {

namespace {

Evaluation evaluate_on(TrainingState& run, nn::Module& model, const Recipe& recipe,
                       std::shared_ptr<const data::Dataset> images, int workers) {
  const DataParallel& processes = run.processes;
  data::Loader batches = make_test_loader(recipe, std::move(images), workers, model.device(), processes.part());
  return evaluate(model, batches, run.precision, {.group = processes.alone() ? nullptr : &processes.group()});
}

}  // namespace

Evaluation evaluate_on_test_images(TrainingState& run, nn::Module& model, int workers) {
  return evaluate_on(run, model, run.recipe, run.test_set, workers);
}

Evaluation evaluate_on_training_images(TrainingState& run, nn::Module& model, int64_t images, int workers) {
  Recipe recipe = run.recipe;
  recipe.test_images = 0;  // all of the part
  const int64_t count = std::min(images, run.train_set->info().size);
  return evaluate_on(run, model, recipe, data::random_subset(run.train_set, count), workers);
}

void load_averages(TrainingState& run, nn::Module& model) {
  // All steps so far may have been left out.
  model.load_state_dict(run.optimizer->steps() > 0 ? run.ema->averages() : run.wide_state());
}

}  // namespace norma::train
