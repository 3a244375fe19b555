#include "cli/command.h"
#include "cli/options.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/interrupt.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

namespace norma::cli {

namespace {

struct State {
  RecipeOptions recipe{{}};
  RunOptions running;
  std::string checkpoint;
  CLI::Option* model = nullptr;
};

int run(const State& state) {
  state.running.apply();
  const std::filesystem::path given = state.checkpoint;
  const std::filesystem::path file = std::filesystem::is_directory(given) ? given / "last.safetensors" : given;
  // A file of weights alone says nothing of the network they are for.
  const bool weights_only = state.model->count() > 0;
  const train::Recipe recipe =
      state.recipe.applied_to(weights_only ? state.recipe.defaults() : train::recipe_of(train::load_checkpoint(file)));
  train::check_recipe(recipe);
  const auto dataset = train::make_dataset(recipe, data::Split::test);
  const auto model = train::make_model(recipe, dataset->info().num_classes());
  model->load_state_dict(train::load_weights(file));
  data::Loader batches = train::make_test_loader(recipe, dataset, state.running.workers);
  const train::InterruptGuard guard;
  const train::Evaluation result = train::evaluate(*model, batches);
  fmt::print("{} {} on {}: accuracy {:.2f} %, loss {:.4f} ({} images, {:.1f} img/s){}\n", recipe.model,
             recipe.norm.empty() ? "with its own norm" : recipe.norm, recipe.dataset, 100 * result.accuracy,
             result.loss, result.images, static_cast<double>(result.images) / result.seconds,
             result.complete ? "" : "; interrupted");
  return result.complete ? kSuccess : kInterrupted;
}

}  // namespace

Command add_eval(CLI::App& program) {
  CLI::App* app = program.add_subcommand("eval", "Accuracy of a checkpoint on the test images");
  app->footer(
      "Examples:\n"
      "  norma eval --checkpoint runs/mine\n"
      "  norma eval --checkpoint weights.safetensors --model resnet18 --norm group:8\n"
      "A checkpoint of 'norma train' knows its network and data; a file of weights alone needs --model.");
  auto state = std::make_shared<State>();
  app->add_option("--checkpoint", state->checkpoint, "the file, or the folder of a run")->type_name("PATH")->required();
  state->recipe.add_model(*app);
  state->recipe.add_model_details(*app);
  state->recipe.add_data(*app);
  state->running.add_threads(*app);
  state->running.add_workers(*app);
  state->model = app->get_option("--model");
  return {app, [state] { return run(*state); }};
}

}  // namespace norma::cli
