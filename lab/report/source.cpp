#include "core/error.h"
#include "data/json.h"
#include "lab/report/report.h"
#include "lab/report/source_json.h"
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

nlohmann::ordered_json source_to_json(const Comparison& comparison) {
  nlohmann::ordered_json networks = nlohmann::ordered_json::array();
  for (const SourceNetwork& source : comparison.sources) {
    networks.push_back({{"model", source.model}, {"accuracy", source.accuracy}, {"sha256", source.sha256}});
  }
  return {{"classes", comparison.source_classes}, {"networks", std::move(networks)}};
}

void read_source(const nlohmann::json& json, const std::string& where, Comparison& comparison) {
  comparison.source_classes = data::json_field<std::vector<int64_t>>(where, json, "classes");
  check(comparison.source_classes.size() > 1, where, "classes: expected two or more, got {}",
        comparison.source_classes.size());
  check(json.contains("networks") && json["networks"].is_array(), where, "networks: expected a list");
  for (const nlohmann::json& one : json["networks"]) {
    const std::string place = fmt::format("{}: network {}", where, comparison.sources.size() + 1);
    const SourceNetwork source{.model = data::json_field<std::string>(place, one, "model"),
                               .accuracy = data::json_field<double>(place, one, "accuracy"),
                               .sha256 = data::json_field<std::string>(place, one, "sha256")};
    check(source.accuracy >= 0 && source.accuracy <= 1, place, "accuracy: expected a number from 0 to 1, got {}",
          source.accuracy);
    comparison.sources.push_back(source);
  }
}

}  // namespace norma::lab
