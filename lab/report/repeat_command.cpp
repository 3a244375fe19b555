#include "lab/report/report.h"

#include "core/quoting.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

namespace norma::lab {

namespace {

std::string train_command(const train::Recipe& recipe, const train::Environment& environment) {
  const train::Recipe defaults;
  std::string text = "norma train";
  const auto put = [&](std::string_view option, std::string_view value) {
    text += fmt::format(" --{} {}", option, shell_word(value));
  };
  for (const train::RecipeOption& option : train::recipe_options()) {
    const std::vector<std::string> items = option.items(recipe);
    const bool always = option.part == train::RecipePart::model;
    if (items.empty() || (items == option.items(defaults) && !always)) {
      continue;
    }
    if (option.is_switch()) {
      text += fmt::format(" --{}{}", items == std::vector<std::string>{"true"} ? "" : "no-", option.name);
    } else {
      put(option.name, fmt::format("{}", fmt::join(items, ",")));
    }
  }
  for (const nn::PluginRecord& plugin : environment.plugins) {
    put("plugin", plugin.file);
  }
  if (!environment.device.empty() && environment.device != "cpu") {
    put("device", environment.device.substr(0, environment.device.find_first_of(":,")));
  }
  if (environment.exact_convolutions) {
    put("conv", "exact");
  }
  if (environment.processes > 1) {
    put("procs", fmt::format("{}", environment.processes));
  }
  if (environment.threads != environment.cores) {
    put("threads", fmt::format("{}", environment.threads));  // bits depend on it
  }
  return text;
}

}  // namespace

std::string repeat_command(const Comparison& comparison, const Cell& cell) {
  const train::Recipe recipe = recipe_of(comparison, cell);
  std::string command = train_command(recipe, comparison.environment);
  if (cell.option(kWeights) == kRecalibrated) {
    command +=
        fmt::format(" --output run && norma eval --checkpoint run --use-ema --recalibrate {}", kRecalibrationBatches);
  }
  if (comparison.source_classes.empty() || recipe.initial_checkpoint.empty()) {
    return command;
  }
  const std::string folder = std::filesystem::path(recipe.initial_checkpoint).parent_path().string();
  return fmt::format("{} --output {} && {}",
                     train_command(source_recipe(comparison, cell.model), comparison.environment), shell_word(folder),
                     command);
}

}  // namespace norma::lab
