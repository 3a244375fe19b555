#include "cli/command.h"
#include "cli/options.h"
#include "core/copy.h"
#include "core/error.h"
#include "models/registry.h"
#include "nn/norm/convert.h"
#include "train/checkpoint.h"
#include "train/dataset_notes.h"
#include "train/evaluate.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/ranges.h"
#include "train/recalibrate.h"
#include "train/trainer.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace norma::cli {

namespace {

struct State {
  RecipeOptions recipe{{}};
  RunOptions running;
  std::string checkpoint;
  Option model;
  int64_t recalibrate = 0;
  bool fold = false;
  bool use_ema = false;
};

/// What a checkpoint says of its run.
struct Trained {
  train::Recipe recipe;
  std::vector<std::string> class_names;
};

Trained trained_in(const std::filesystem::path& file) {
  const train::Checkpoint checkpoint = train::load_checkpoint(file);
  return {.recipe = train::recipe_of(checkpoint), .class_names = train::class_names_of(checkpoint)};
}

/// Other names are a warning: the same classes may have them in another dataset. Another number is an error.
void check_classes(const std::vector<std::string>& of_training, const data::DatasetInfo& dataset) {
  const std::string difference = train::class_difference(of_training, dataset);
  check(difference.empty() || dataset.class_names.size() == of_training.size(), "eval", "{}", difference);
  if (!difference.empty()) {
    train::put(stderr, fmt::format("norma: eval: warning: {}\n", difference));
  }
}

int run(const State& state) {
  state.running.apply("eval");
  const std::filesystem::path given = state.checkpoint;
  const std::filesystem::path file = train::is_folder("eval", given) ? given / "last.safetensors" : given;
  // A file of weights alone says nothing of the network they are for.
  const bool weights_only = state.model.given();
  const Trained trained =
      weights_only ? Trained{.recipe = state.recipe.defaults(), .class_names = {}} : trained_in(file);
  const train::Recipe recipe = state.recipe.applied_to(trained.recipe);
  train::check_recipe(recipe);
  const auto dataset = train::make_dataset(recipe, data::Split::test);
  check_classes(trained.class_names, dataset->info());
  if (const std::string text = train::empty_classes_text(dataset->info()); !text.empty()) {
    train::say("{}\n", text);
  }
  const train::Precision precision = train::precision_of(recipe);
  print_precision_note(precision);
  // Running statistics and folded weights are computed in float32; what is evaluated is converted afterwards.
  const auto model = train::make_model(train::in_full_precision(recipe), dataset->info().num_classes());
  train::load_model_weights(*model, recipe.model, file, state.use_ema ? train::Weights::ema : train::Weights::model);
  train::check_finite("eval", file.string(), model->state_dict());
  if (state.recalibrate > 0) {
    data::Loader training = train::make_train_loader(recipe, train::make_dataset(recipe, data::Split::train),
                                                     static_cast<int>(state.running.workers));
    const int64_t used = train::recalibrate(*model, training, state.recalibrate);
    train::say("running statistics are the average over {} training batches\n", used);
  }
  data::Loader batches = train::make_test_loader(recipe, dataset, static_cast<int>(state.running.workers));
  if (state.fold) {
    data::Loader example = train::make_test_loader(recipe, dataset, 0);
    const int64_t folded = nn::fold_batch_norm(*model, to_device(example.next()->images, model->device()));
    train::say("{} batch norms are folded into the convolutions before them\n", folded);
  }
  const train::InterruptGuard guard;
  train::convert_model(*model, precision);
  const train::Evaluation result = train::evaluate(*model, batches, precision);
  train::say("{} {} on {}: accuracy {:.2f} %, loss {:.4f} ({} images, {:.1f} img/s){}\n",
             train::model_label(recipe.model, recipe),
             train::norm_label(recipe.norm.empty() ? models::own_norm(recipe.model) : recipe.norm, recipe),
             recipe.dataset, 100 * result.accuracy, result.loss, result.images,
             static_cast<double>(result.images) / result.seconds, result.complete ? "" : "; interrupted");
  if (const std::string text = train::skipped_text(*dataset); !text.empty()) {
    train::say("{}\n", text);
  }
  if (!std::isfinite(result.loss)) {
    train::put(stderr, fmt::format("norma: eval: the loss is {}, though all weights are finite (precision: {})\n",
                                   result.loss, recipe.precision));
    return kFailure;
  }
  return result.complete ? kSuccess : interrupted_code();
}

}  // namespace

Command add_eval(CLI::App& program) {
  CLI::App& app = add_subcommand(
      program, "eval", "Accuracy of a checkpoint on the test images",
      "Examples:\n"
      "  norma eval --checkpoint runs/mine\n"
      "  norma eval --checkpoint weights.safetensors --model resnet18 --norm group:8\n"
      "  norma eval --checkpoint runs/mine --recalibrate 100 --fold\n"
      "A checkpoint of 'norma train' knows its network and data; a file of weights alone needs --model.");
  auto state = std::make_shared<State>();
  add_path(app, "--checkpoint", state->checkpoint, "the file, or the folder of a run").type_name("PATH").required();
  add_value<int64_t>(
      app, "--recalibrate", train::ranges::kStepsOrNone, [s = state.get()](int64_t n) { s->recalibrate = n; },
      "first replace the running statistics of batch norms by their average over N training batches")
      .type_name("N")
      .default_str("0: keep those of the checkpoint");
  add_switch(app, "--fold", state->fold, "first fold batch norms into the convolutions before them");
  add_switch(app, "--use-ema", state->use_ema, "with the averaged weights of 'norma train --model-ema'");
  state->recipe.add_model(app);
  state->recipe.add_model_details(app);
  state->recipe.add_data(app);
  state->recipe.add_precision(app, train::precision_names());
  state->running.add_plugin(app);
  state->running.add_threads(app);
  state->running.add_device(app);
  state->running.add_workers(app);
  state->model = option_of(app, "--model");
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
