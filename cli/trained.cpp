#include "cli/trained.h"

#include "cli/plugins.h"
#include "models/registry.h"
#include "session/output.h"
#include "session/run_folder.h"
#include "train/checkpoint.h"
#include "train/training_state.h"

#include <algorithm>

namespace norma::cli {

namespace {

/// True iff a file is a checkpoint of a run with this network, under any of its names; it then has the network's other
/// settings, too.
bool is_run_of(std::string_view op, const std::string& model, const std::filesystem::path& file) {
  if (!train::path_exists(op, file) || !train::is_checkpoint(file)) {
    return false;
  }
  const train::Checkpoint head = train::load_checkpoint_metadata(file);
  return models::network_of(head.model_name) == models::network_of(model) && head.options.contains(train::kRecipeKey);
}

}  // namespace

void add_weights_options(CLI::App& app, train::WeightsOptions& options) {
  add_switch(app, "--use-ema", options.use_ema, "the averaged weights in the file, as of 'norma train --model-ema'");
  add_text(app, "--weights-prefix", "a text", options.prefix,
           "a part of what stands before the weights' names in a file of several networks: encoder_q")
      .type_name("TEXT");
}

train::Recipe recipe_for(const Trained& trained, const RecipeOptions& options) {
  train::Recipe recipe = options.applied_to(trained.recipe);
  if (trained.of_run && recipe.model == models::network_of(trained.recipe.model)) {
    recipe.model = trained.recipe.model;
  }
  if (const std::vector<std::string> typed = options.typed();
      trained.of_run && std::ranges::find(typed, "img-size") == typed.end()) {
    recipe.image_size = trained.recipe.image_size;  // whatever the name says
  }
  return recipe;
}

void warn_of_other_norm(std::string_view op, const Trained& trained, const train::Recipe& recipe) {
  const auto norm_of = [&](const train::Recipe& of) {
    return of.norm.empty() ? models::own_norm(recipe.model) : of.norm;
  };
  const std::string before = norm_of(trained.recipe);
  const std::string now = norm_of(recipe);
  if (trained.of_run && models::complete_norm(recipe.model, before) != models::complete_norm(recipe.model, now)) {
    train::warn(op, "the weights were trained with norm {}, and {} takes them as they are: the network is another one",
                before, now);
  }
  const std::string& qk_before = trained.recipe.qk_norm;
  if (trained.of_run && !qk_before.empty() && !recipe.qk_norm.empty() &&
      models::complete_norm(recipe.model, qk_before) != models::complete_norm(recipe.model, recipe.qk_norm)) {
    train::warn(op,
                "the weights were trained with qk-norm {}, and {} takes them as they are: the network is another one",
                qk_before, recipe.qk_norm);
  }
}

std::filesystem::path checkpoint_file(std::string_view op, const std::filesystem::path& given) {
  if (!train::is_folder(op, given)) {
    return given;
  }
  std::vector<std::string> warnings;
  std::filesystem::path newest = train::newest_checkpoint(given, warnings);
  for (const std::string& text : warnings) {
    train::warn(op, "{}", text);
  }
  return newest;
}

Trained trained_in(const std::filesystem::path& file, std::string_view op, const RecipeOptions& options,
                   bool names_model) {
  if (names_model && !is_run_of(op, options.applied_to(options.defaults()).model, file)) {
    return {.recipe = options.defaults(), .class_names = {}, .of_run = false};
  }
  const train::Checkpoint checkpoint = train::load_checkpoint(file);
  return {.recipe = train::recipe_of(checkpoint),
          .class_names = train::class_names_of(checkpoint),
          .plugins = plugins_of(checkpoint, file),
          .normalization = train::normalization_of(checkpoint)};
}

}  // namespace norma::cli
