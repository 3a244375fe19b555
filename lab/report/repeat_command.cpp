#include "lab/report/report.h"

#include "base/quoting.h"
#include "data/json.h"
#include "nn/norm/factory.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace norma::lab {

namespace {

using Words = std::vector<std::string>;

void put(Words& words, const std::string& option, std::string value) {
  words.push_back("--" + option);
  words.push_back(std::move(value));
}

/// The options of all commands that compute.
void put_machine(Words& words, const train::Environment& environment) {
  for (const nn::PluginRecord& plugin : environment.plugins) {
    put(words, "plugin", plugin.file);
  }
  if (!environment.device.empty() && environment.device != "cpu") {
    put(words, "device", environment.device.substr(0, environment.device.find_first_of(":,")));
  }
  if (environment.exact_convolutions.value_or(false)) {
    put(words, "conv", "exact");
  }
  if (environment.threads != environment.cores) {
    put(words, "threads", fmt::format("{}", environment.threads));  // bits depend on it
  }
}

Words train_words(const train::Recipe& recipe, const train::Environment& environment) {
  const train::Recipe defaults;
  Words words{"train"};
  for (const train::RecipeOption& option : train::recipe_options()) {
    const std::vector<std::string> items = option.items(recipe);
    const bool always = option.part == train::RecipePart::model;
    if (items.empty() || (items == option.items(defaults) && !always)) {
      continue;
    }
    if (option.is_switch()) {
      words.push_back(fmt::format("--{}{}", items == Words{"true"} ? "" : "no-", option.name));
    } else {
      put(words, option.name, fmt::format("{}", fmt::join(items, ",")));
    }
  }
  if (environment.processes > 1) {
    put(words, "procs", fmt::format("{}", environment.processes));
  }
  put_machine(words, environment);
  return words;
}

/// The name of a norm that is none of Norma's and none of the run's plug-ins': a program registered it. "" for others.
std::string norm_of_a_program(const std::string& norm, const train::Environment& environment) {
  const std::string name = norm.substr(0, norm.find_first_of(":/["));
  const auto has_name = [&](const auto& known) { return known.first == name; };
  const auto has_norm = [&](const nn::PluginRecord& plugin) { return std::ranges::count(plugin.norms, name) > 0; };
  const bool known =
      std::ranges::any_of(nn::built_in_norms(), has_name) || std::ranges::any_of(environment.plugins, has_norm);
  return known ? "" : name;
}

/// One command after the other, for a shell or for Python.
std::string text_of(const std::vector<Words>& commands, const std::string& registered) {
  std::string text;
  for (const Words& words : commands) {
    if (registered.empty()) {
      text += text.empty() ? "norma" : " && norma";
      for (const std::string& word : words) {
        text += " " + shell_word(word);
      }
    } else {  // JSON's strings are Python's
      const std::string list = data::json_text(nlohmann::json(words));
      text += fmt::format("{}norma.run({})", text.empty() ? "" : "; ", list.substr(1, list.size() - 2));
    }
  }
  return registered.empty() ? text : fmt::format("{}  # in the Python program that registers '{}'", text, registered);
}

}  // namespace

std::string repeat_command(const Comparison& comparison, const Cell& cell) {
  const train::Environment& environment = comparison.environment;
  const train::Recipe recipe = recipe_of(comparison, cell);
  std::vector<Words> commands{train_words(recipe, environment)};
  if (cell.option(kWeights) == kRecalibrated) {
    put(commands.back(), "output", "run");
    commands.push_back(
        {"eval", "--checkpoint", "run", "--use-ema", "--recalibrate", std::to_string(kRecalibrationBatches)});
    put_machine(commands.back(), environment);
  }
  if (!comparison.source_classes.empty() && !recipe.initial_checkpoint.empty()) {
    commands.insert(commands.begin(), train_words(source_recipe(comparison, cell.model), environment));
    put(commands.front(), "output", std::filesystem::path(recipe.initial_checkpoint).parent_path().string());
  }
  return text_of(commands, norm_of_a_program(recipe.norm, environment));
}

}  // namespace norma::lab
