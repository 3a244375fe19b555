#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "lab/compare/comparison.h"
#include "lab/compare/timing.h"
#include "models/registry.h"
#include "session/environment.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace norma::lab {

namespace {

template <class T>
void check_list(std::string_view name, const std::vector<T>& values) {
  check(!values.empty(), "compare", "{}: expected at least one, got none", name);
  check_each_once("compare", name, values);
}

template <class T>
std::vector<T> or_one(const std::vector<T>& values, const T& one) {
  return values.empty() ? std::vector<T>{one} : values;
}

/// The options with at least one value in each list.
ComparisonOptions completed(ComparisonOptions options) {
  check_list("models", options.models);
  check_list("norms", options.norms);
  check_list("seeds", options.seeds);
  check_each_once("compare", "batch-sizes", options.batch_sizes);
  check_each_once("compare", "lrs", options.lrs);
  check_each_once("compare", "precisions", options.precisions);
  check_each_once("compare", "formats",
                  mapped(options.formats, [](MemoryFormat format) { return std::string(to_string(format)); }));
  check_each_once("compare", "datasets", options.datasets);
  for (auto& [name, words] : options.options) {
    const train::RecipeOption* option = train::find_recipe_option(name);  // none: an axis of comparisons alone
    for (std::string& word : words) {
      train::Recipe recipe;
      word = take_option(recipe, "compare", name, word);  // 0.05 and 5e-2 are one value
      if (option != nullptr) {
        option->check_value(recipe);
      }
    }
    check_each_once("compare", name, words);
    if (option != nullptr && words.size() == 1) {  // no axis
      option->take(options.recipe, words.front());
      words.clear();
    }
  }
  std::erase_if(options.options, [](const auto& axis) { return axis.second.empty(); });
  const Settings common = settings_of(options.recipe);
  options.batch_sizes = or_one(options.batch_sizes, common.batch_size);
  options.lrs = or_one(options.lrs, common.lr);
  options.precisions = or_one(options.precisions, common.precision);
  options.formats = or_one(options.formats, common.format);
  options.datasets = or_one(options.datasets, common.dataset);
  return options;
}

/// Rounds to the four digits of a learning rate's text. A number too small for that stays; check_recipe() refuses it.
double to_four_digits(double value) {
  return parse_number<double>(fmt::format("{:.4g}", value)).value_or(value);
}

/// The learning rate for a batch size.
double scaled_lr(const Settings& settings, const ComparisonOptions& options) {
  const double batches = static_cast<double>(settings.batch_size) / kLrBatchSize;
  switch (options.lr_scaling) {
    case LrScaling::none: break;
    case LrScaling::sqrt: return to_four_digits(settings.lr * std::sqrt(batches));
    case LrScaling::linear: return to_four_digits(settings.lr * batches);
  }
  return settings.lr;
}

/// Throws Error if two specs are one norm: a network would be trained twice for two equal rows.
void check_norms_differ(const ComparisonOptions& options) {
  for (const std::string& model : options.models) {
    std::map<std::string, std::string> seen;
    for (const std::string& norm : options.norms) {
      const auto [first, is_new] = seen.emplace(to_string(models::complete_norm(model, norm)), norm);
      check(is_new, "compare", "norms: expected each once, but '{}' and '{}' are the same in {}", first->second, norm,
            model);
    }
  }
}

/// Throws Error for an option that only some cells take, unless one of them takes it; for an axis, unless all do, as
/// those that do not would have equal runs.
void check_shared(const ComparisonOptions& options) {
  for (const FamilyOption& one : family_options()) {
    const bool is_axis = options.options.contains(one.option->name);
    // A recipe of --quick or of a study has the others where they fit; check_families() knows what was typed.
    const bool is_name = one.key == "global_pool" || one.key == "qk_norm" || one.key == "norm_placement";
    const bool asked = is_name && one.option->items(options.recipe) != one.option->items({});
    if (is_axis || asked) {
      check_is_taken(one, options.models, /* all= */ is_axis);
    }
  }
  if (!options.recipe.data_dir.empty()) {
    const auto in_files = [](const std::string& dataset) { return dataset != "shapes"; };
    const auto count = std::ranges::count_if(options.datasets, in_files);
    if (count == 0) {
      train::Recipe recipe = options.recipe;
      recipe.dataset = options.datasets.front();
      train::check_recipe(recipe);  // refuses the folder
    }
    check(count <= 1, "compare", "data-dir: expected one dataset that is read from files, got {}", count);
  }
  if (!options.recipe.cast_policy.empty() || !options.recipe.cast.empty()) {
    train::Recipe recipe = options.recipe;
    recipe.precision = options.precisions.front();
    for (const std::string& precision : options.precisions) {
      if (train::parse_precision(precision).autocast) {
        recipe.precision = precision;
      }
    }
    train::precision_of(recipe);
  }
}

}  // namespace

std::string_view to_string(LrScaling scaling) {
  return scaling == LrScaling::none ? "none" : scaling == LrScaling::sqrt ? "sqrt" : "linear";
}

void apply_study(const Study& study, ComparisonOptions& options) {
  const auto fill = [](auto& values, const auto& of_study) {
    if (values.empty()) {
      values = of_study;
    }
  };
  fill(options.models, study.models);
  fill(options.norms, study.norms);
  fill(options.seeds, study.seeds);
  fill(options.batch_sizes, study.batch_sizes);
  fill(options.lrs, study.lrs);
  fill(options.precisions, study.precisions);
  if (options.recipe.initial_checkpoint.empty()) {
    fill(options.recipe.classes, study.classes);
  }
  for (const auto& [name, words] : study.options) {
    fill(options.options[name], words);
  }
  options.lr_scaling = lr_scaling_from_string(study.lr_scaling);
  options.study = study.name;
  options.study_text = study.text;
}

LrScaling lr_scaling_from_string(const std::string& name) {
  constexpr std::array kAll = {LrScaling::none, LrScaling::sqrt, LrScaling::linear};
  const auto to_text = [](LrScaling scaling) { return std::string(to_string(scaling)); };
  const auto found = std::ranges::find(kAll, name, to_text);
  check(found != kAll.end(), "compare", "lr-scaling: {}", unknown_name("name", name, mapped(kAll, to_text)));
  return *found;
}

Comparison plan_comparison(const ComparisonOptions& given) {
  const ComparisonOptions options = completed(given);
  check_shared(options);
  check(!options.tune_lr || options.lrs.size() == 1, "compare",
        "lrs: expected one, for tune-lr to try others around it, got {}", options.lrs.size());
  check_range("compare", "timing-rounds", options.timing_rounds, train::ranges::kStepsOrNone);
  Comparison comparison{.recipe = options.recipe,
                        .timing_rounds = options.timing_rounds,
                        .tune_lr = options.tune_lr,
                        .telemetry = options.telemetry,
                        .dynamics = options.dynamics,
                        .environment = train::environment(),
                        .command = options.command,
                        .date = train::local_time(),
                        .study = options.study,
                        .study_text = options.study_text};
  std::vector<Settings> settings;
  for (const std::string& model : options.models) {
    settings.emplace_back(settings_of(options.recipe)).model = model;
    train::Recipe recipe = options.recipe;
    recipe.model = model;
    train::check_norm_policy(recipe);
  }
  const auto cross = [&](const auto& values, auto&& field) {  // a member, or a function that gives the place
    std::vector<Settings> product;
    for (const Settings& one : settings) {
      for (const auto& value : values) {
        std::invoke(field, product.emplace_back(one)) = value;
      }
    }
    settings = std::move(product);
  };
  cross(options.datasets, &Settings::dataset);
  cross(options.batch_sizes, &Settings::batch_size);
  cross(options.lrs, &Settings::lr);
  cross(options.precisions, &Settings::precision);
  cross(options.formats, &Settings::format);
  for (const OptionAxis& axis : option_axes()) {
    if (const auto words = options.options.find(axis.option); words != options.options.end()) {
      cross(words->second, [&](Settings& one) -> std::string& { return one.options[axis.option]; });
    }
  }
  cross(options.norms, &Settings::norm);
  cross(options.seeds, &Settings::seed);
  plan_starts(options, comparison, settings);
  for (Settings& one : settings) {
    one.lr = scaled_lr(one, options);
  }
  for (auto one = settings.begin(); options.lr_scaling != LrScaling::none && one != settings.end(); ++one) {
    check(std::find(settings.begin(), one, *one) == one, "compare",
          "lrs: expected each once, but two are {} for a batch size of {}", one->lr, one->batch_size);
  }
  for (const Settings& one : settings) {
    check(!one.norm.empty(), "compare", "norms: expected a name, got an empty one");
    const train::Recipe recipe = recipe_of(comparison.recipe, one);
    train::check_recipe(recipe);
    train::check_training(recipe);
    static_cast<Settings&>(comparison.cells.emplace_back()) = one;
  }
  check_norms_differ(options);
  const Settings& first = comparison.cells.front();
  comparison.recipe.batch_size = first.batch_size;
  comparison.recipe.lr = first.lr;
  comparison.recipe.precision = first.precision;
  comparison.recipe.channels_last = first.format == MemoryFormat::channels_last;
  comparison.recipe.dataset = first.dataset;
  for (const auto& [name, word] : first.options) {
    if (name != kStart) {  // which would take the file from the others
      take_option(comparison.recipe, "compare", name, word);
    }
  }
  return comparison;
}

std::vector<std::string> without_effect(const Comparison& comparison, const std::vector<std::string>& given) {
  std::vector<std::string> lines = train::without_effect(recipe_of(comparison.recipe, comparison.cells.front()), given);
  for (const Cell& cell : comparison.cells) {
    const std::vector<std::string> own = train::without_effect(recipe_of(comparison.recipe, cell), given);
    std::erase_if(lines, [&](const std::string& line) { return !is_in(own, line); });
  }
  return lines;
}

}  // namespace norma::lab
