#include "cli/trained.h"

#include "cli/plugins.h"
#include "train/checkpoint.h"
#include "train/dataset_notes.h"
#include "train/output.h"
#include "train/run_folder.h"
#include "train/training_state.h"

namespace norma::cli {

namespace {

/// True iff a file is a checkpoint of a run with this model; it then has the network's other settings, too.
bool is_run_of(std::string_view op, const std::string& model, const std::filesystem::path& file) {
  if (!train::path_exists(op, file) || !train::is_checkpoint(file)) {
    return false;
  }
  const train::Checkpoint head = train::load_checkpoint_metadata(file);
  return head.model_name == model && head.options.contains(train::kRecipeKey);
}

}  // namespace

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
    return {.recipe = options.defaults(), .class_names = {}};
  }
  const train::Checkpoint checkpoint = train::load_checkpoint(file);
  return {.recipe = train::recipe_of(checkpoint),
          .class_names = train::class_names_of(checkpoint),
          .plugins = plugins_of(checkpoint, file)};
}

}  // namespace norma::cli
