#include "cli/compare_axes.h"

#include "core/nearest_name.h"
#include "lab/report/settings.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <variant>

namespace norma::cli {

train::Recipe recipe_of_comparisons() {
  train::Recipe recipe;
  recipe.images = 25600;
  return recipe;
}

template <class T>
void add_axis(CLI::App& app, const std::string& names, const std::string& option_name, std::vector<T>& values,
              const std::string& default_text) {
  const train::RecipeOption& option = train::recipe_option(option_name);
  Option added;
  if constexpr (std::is_same_v<T, std::string>) {
    added = add_list(app, names, option.expected, values, option.help_text());
  } else {
    added = add_values(app, names, std::get<train::NumberField<T>>(option.field).range, values, option.help_text());
  }
  added.type_name("LIST")
      .default_str(default_text.empty() ? option.default_text(recipe_of_comparisons()) : default_text)
      .group(option.heading);
}

template void add_axis(CLI::App&, const std::string&, const std::string&, std::vector<std::string>&,
                       const std::string&);
template void add_axis(CLI::App&, const std::string&, const std::string&, std::vector<int64_t>&, const std::string&);
template void add_axis(CLI::App&, const std::string&, const std::string&, std::vector<double>&, const std::string&);

namespace {

/// The axes of lab::option_axes() that are options of a recipe.
void add_option_axes(CLI::App& app, std::map<std::string, std::vector<std::string>>& options) {
  for (const lab::OptionAxis& axis : lab::option_axes()) {
    if (!axis.words.empty()) {
      continue;  // add_own_axis()
    }
    const train::RecipeOption& option = train::recipe_option(axis.option);
    const auto take = [&options, &option](const std::string& word) {
      train::Recipe recipe;
      if (!option.take(recipe, word)) {
        return false;
      }
      option.check_value(recipe);
      options[option.name].push_back(word);
      return true;
    };
    const std::string names =
        option.name == axis.flag ? "--" + option.name : fmt::format("--{},--{}", option.name, axis.flag);
    const std::string expected = option.is_text() ? option.expected : "numbers in its range";
    add_items(
        app, names, expected, [&options, &option] { options.erase(option.name); }, take, option.help_text())
        .type_name("LIST")
        .default_str(option.default_text(recipe_of_comparisons()))
        .group(option.heading);
  }
}

/// An axis that comparisons alone have, with the heading of its help. The first of its words is the default.
void add_own_axis(CLI::App& app, const std::string& name, const char* heading, const char* help,
                  std::map<std::string, std::vector<std::string>>& options) {
  const lab::OptionAxis& axis = *std::ranges::find(lab::option_axes(), name, &lab::OptionAxis::option);
  const auto take = [&options, &axis](const std::string& word) {
    options[axis.option].push_back(word);
    return std::ranges::find(axis.words, word) != axis.words.end();
  };
  const std::string names = name == axis.flag ? "--" + name : fmt::format("--{},--{}", name, axis.flag);
  add_items(
      app, names, or_list(axis.words), [&options, name] { options.erase(name); }, take, help)
      .type_name("LIST")
      .default_str(axis.words.front())
      .group(heading);
}

void add_formats(CLI::App& app, std::vector<MemoryFormat>& formats) {
  const auto take = [&formats](const std::string& name) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      if (to_string(format) == name) {
        formats.push_back(format);
        return true;
      }
    }
    return false;
  };
  add_items(
      app, "--format,--formats", "contiguous or channels_last", [&formats] { formats.clear(); }, take,
      "order of activations in memory: contiguous is N, C, H, W; channels_last is N, H, W, C")
      .type_name("LIST")
      .default_str("channels_last")
      .group("Images");
  add_switch(
      app, "--channels-last,!--no-channels-last",
      [&formats](bool on) { formats = {on ? MemoryFormat::channels_last : MemoryFormat::contiguous}; },
      "short for --format channels_last")
      .group("Images");
  exclude(app, {"--formats", "--channels-last"});
}

}  // namespace

void add_axes(CLI::App& app, GridAxes& axes) {
  add_axis(app, "--data,--dataset,--datasets", "dataset", axes.datasets);
  add_axis(app, "-b,--batch-size,--batch-sizes", "batch-size", axes.batch_sizes);
  add_formats(app, axes.formats);
  add_axis(app, "--lr,--lrs", "lr", axes.lrs);
  add_option_axes(app, axes.options);
  add_own_axis(app, "weights", "Optimisation",
               "weights that are tested: the last ones, their moving average with that of batch norm's statistics, or "
               "with statistics that are made anew for it",
               axes.options);
  add_own_axis(app, lab::kStart, "Weights at the start",
               "where runs start: from random weights, or from those of --initial-checkpoint or of a run on the other "
               "classes beside --classes: norms kept, kept with frozen statistics, or converted (docs/finetune.md)",
               axes.options);
}

std::vector<std::string> axis_options() {
  std::vector<std::string> names{"dataset", "batch-size", "channels-last", "lr"};
  for (const lab::OptionAxis& axis : lab::option_axes()) {
    names.emplace_back(axis.option);
  }
  return names;
}

}  // namespace norma::cli
