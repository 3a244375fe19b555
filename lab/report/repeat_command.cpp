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

void put(std::string& text, std::string_view option, std::string_view value) {
  text += fmt::format(" --{} {}", option, shell_word(value));
}

/// The options of all commands that compute.
std::string machine_words(const train::Environment& environment) {
  std::string text;
  for (const nn::PluginRecord& plugin : environment.plugins) {
    put(text, "plugin", plugin.file);
  }
  if (!environment.device.empty() && environment.device != "cpu") {
    put(text, "device", environment.device.substr(0, environment.device.find_first_of(":,")));
  }
  if (environment.exact_convolutions.value_or(false)) {
    put(text, "conv", "exact");
  }
  if (environment.threads != environment.cores) {
    put(text, "threads", fmt::format("{}", environment.threads));  // bits depend on it
  }
  return text;
}

std::string train_command(const train::Recipe& recipe, const train::Environment& environment) {
  const train::Recipe defaults;
  std::string text = "norma train";
  for (const train::RecipeOption& option : train::recipe_options()) {
    const std::vector<std::string> items = option.items(recipe);
    const bool always = option.part == train::RecipePart::model;
    if (items.empty() || (items == option.items(defaults) && !always)) {
      continue;
    }
    if (option.is_switch()) {
      text += fmt::format(" --{}{}", items == std::vector<std::string>{"true"} ? "" : "no-", option.name);
    } else {
      put(text, option.name, fmt::format("{}", fmt::join(items, ",")));
    }
  }
  if (environment.processes > 1) {
    put(text, "procs", fmt::format("{}", environment.processes));
  }
  return text + machine_words(environment);
}

}  // namespace

std::string repeat_command(const Comparison& comparison, const Cell& cell) {
  const train::Recipe recipe = recipe_of(comparison, cell);
  std::string command = train_command(recipe, comparison.environment);
  if (cell.option(kWeights) == kRecalibrated) {
    command +=
        fmt::format(" --output run && norma eval --checkpoint run --use-ema --recalibrate {}", kRecalibrationBatches) +
        machine_words(comparison.environment);
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
