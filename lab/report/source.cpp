#include "lab/report/report.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

// The weights that the runs of a comparison start from.

namespace norma::lab {

train::Recipe source_recipe(const Comparison& comparison, const std::string& model) {
  using Part = train::RecipePart;
  train::Recipe recipe;
  for (const train::RecipeOption& option : train::recipe_options()) {
    if (option.part == Part::network || option.part == Part::data || option.part == Part::shape ||
        option.part == Part::precision) {
      option.give(comparison.recipe, recipe);
    }
  }
  Settings settings = settings_of(recipe);
  settings.model = model;
  settings.norm = "batch";
  recipe = recipe_of(recipe, settings);  // without what other families of networks have
  recipe.norm_policy.clear();
  recipe.norm_policy_file.clear();
  recipe.classes = comparison.source_classes;
  recipe.epochs = kSourceRuns * comparison.recipe.epochs;
  recipe.images = kSourceRuns * comparison.recipe.images;
  return recipe;
}

std::string start_note(const Comparison& comparison) {
  const std::string& file = comparison.recipe.initial_checkpoint;
  const auto from_weights = [&](const Cell& cell) {
    const std::string start = cell.option(kStart);
    return start.empty() ? !file.empty() : start != kScratch;
  };
  if (std::ranges::none_of(comparison.cells, from_weights)) {
    return "";
  }
  if (!file.empty()) {
    const bool all = std::ranges::all_of(comparison.cells, from_weights);
    return fmt::format("{} from the weights in {} (SHA-256 {}).",
                       all ? "All runs begin" : "Runs whose start is not scratch begin", file,
                       comparison.initial_sha256.substr(0, 16));
  }
  std::vector<std::string> networks;
  for (const SourceNetwork& source : comparison.sources) {
    networks.push_back(fmt::format("{} with {:.1f} % of their test images right", source.model, 100 * source.accuracy));
  }
  return fmt::format(
             "Runs whose start is not scratch begin with a network that was trained with batch norm on the classes "
             "{}{}.",
             fmt::join(comparison.source_classes, ", "),
             networks.empty() ? "" : fmt::format(": {}", fmt::join(networks, ", "))) +
         (std::ranges::any_of(comparison.sources, [](const SourceNetwork& source) { return source.sha256.empty(); })
              ? " Each part has trained its own, and they are not the same."
              : "");
}

}  // namespace norma::lab
