#include "lab/report/settings.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "models/registry.h"
#include "session/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace norma::lab {

Settings settings_of(const train::Recipe& recipe) {
  return {.model = recipe.model,
          .norm = recipe.norm,
          .seed = recipe.seed,
          .batch_size = recipe.batch_size,
          .lr = recipe.lr,
          .precision = recipe.precision,
          .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous,
          .dataset = recipe.dataset};
}

const std::vector<FamilyOption>& family_options() {
  static const std::vector<FamilyOption> options =
      mapped(std::array{"small-stem", "zero-init-last", "patch-size", "layer-scale", "global-pool", "qk-norm",
                        "qkv-bias", "pos-drop", "norm-placement"},
             [](std::string name) {
               const train::RecipeOption& option = train::recipe_option(name);
               std::ranges::replace(name, '-', '_');
               return FamilyOption{&option, name};
             });
  return options;
}

void check_is_taken(const FamilyOption& option, const std::vector<std::string>& models, bool all) {
  const auto takes = [&](const std::string& model) { return models::model_takes(model, option.key); };
  check(all ? std::ranges::all_of(models, takes) : std::ranges::any_of(models, takes), "compare",
        "{}: expected a network that has this option, got {}", option.option->name, fmt::join(models, ", "));
}

train::Recipe recipe_of(const train::Recipe& common, const Settings& settings) {
  train::Recipe recipe = common;
  recipe.model = settings.model;
  recipe.norm = settings.norm;
  recipe.seed = settings.seed;
  recipe.batch_size = settings.batch_size;
  recipe.lr = settings.lr;
  recipe.precision = settings.precision;
  recipe.channels_last = settings.format == MemoryFormat::channels_last;
  recipe.dataset = settings.dataset;
  for (const auto& [name, word] : settings.options) {
    take_option(recipe, "compare", name, word);
  }
  if (!train::parse_precision(recipe.precision).autocast) {
    recipe.cast_policy.clear();
    recipe.cast_policy_file.clear();
    recipe.cast.clear();
  }
  if (recipe.dataset == "shapes") {
    recipe.data_dir.clear();
  }
  if (!is_in(models::model_names(), models::network_of(settings.model))) {
    return recipe;  // the value is of a program that had registered more
  }
  for (const FamilyOption& one : family_options()) {
    if (!models::model_takes(settings.model, one.key)) {
      one.option->give({}, recipe);
    }
  }
  return recipe;
}

Settings timing_group(Settings settings) {
  settings.norm.clear();
  settings.seed = 0;
  settings.lr = 0;
  for (const OptionAxis& axis : option_axes()) {
    if (!axis.changes_work) {
      settings.options.erase(axis.option);
    }
  }
  return settings;
}

const std::vector<OptionAxis>& option_axes() {
  static const std::vector<OptionAxis> axes = {
      {.option = "opt", .flag = "optimizers", .name = "optimizer", .changes_work = true},
      {.option = "weight-decay", .flag = "weight-decays", .name = "weight decay", .changes_work = false},
      {.option = "qk-norm", .flag = "qk-norms", .name = "QK-norm", .changes_work = true},
      {.option = "norm-placement", .flag = "norm-placements", .name = "norm placement", .changes_work = true},
      {.option = "train-images", .flag = "train-images", .name = "training images", .changes_work = false},
      {.option = kWeights,
       .flag = kWeights,
       .name = kWeights,
       .changes_work = false,
       .words = {"last", "ema", kRecalibrated},
       .heading = "Optimization",
       .help = "weights that are tested: the last ones, their moving average with that of batch norm's statistics, or "
               "with statistics that are made anew for it"},
      {.option = kStart,
       .flag = "starts",
       .name = kStart,
       .changes_work = false,
       .words = {kScratch, "keep", "frozen", "fold", "calibrate"},
       .heading = "Weights at the start",
       .help = "where runs start: from random weights, or from those of --initial-checkpoint or of a run on the other "
               "classes beside --classes: norms kept, kept with frozen statistics, or converted (docs/finetune.md)"}};
  return axes;
}

std::string source_file(const std::string& model) {
  return fmt::format("source/{}/{}", model, train::kLastName);
}

namespace {

/// Each run has the averages that its word asks for.
void take_weights(train::Recipe& recipe, const std::string& word) {
  recipe.model_ema = word != "last";
  const train::Recipe otherwise;
  constexpr double kDecay = 0.99;  // about a hundred steps: runs of a comparison are short
  recipe.model_ema_decay = recipe.model_ema ? kDecay : otherwise.model_ema_decay;
  recipe.model_ema_warmup = recipe.model_ema;
}

void take_start(train::Recipe& recipe, const std::string& word) {
  if (word == kScratch) {
    recipe.initial_checkpoint.clear();
    recipe.weights_prefix.clear();
    recipe.reset_head = recipe.use_ema = recipe.strict = false;
    return;
  }
  if (recipe.initial_checkpoint.empty()) {
    recipe.initial_checkpoint = source_file(recipe.model);
  }
  if (word == "frozen") {
    recipe.freeze.emplace_back("*.running_*");
  } else {
    recipe.convert_norm = word;
  }
}

}  // namespace

std::string take_option(train::Recipe& recipe, std::string_view op, const std::string& name, const std::string& word) {
  const auto axis = std::ranges::find_if(option_axes(), [&](const OptionAxis& one) { return one.option == name; });
  if (axis != option_axes().end() && !axis->words.empty()) {
    check(is_in(axis->words, word), op, "{}: expected {}, got '{}'", name, or_list(axis->words), excerpt(word));
    name == kStart ? take_start(recipe, word) : take_weights(recipe, word);
    return word;
  }
  const train::RecipeOption& option = train::recipe_option(name);
  check(option.take(recipe, word), op, "{}: expected a value of that option, got '{}'", name, excerpt(word));
  const std::vector<std::string> items = option.items(recipe);
  return items.empty() ? train::kNone : items.front();
}

const std::vector<Axis>& further_axes() {
  static const std::vector<Axis> axes = [] {
    std::vector<Axis> all = {
        {.name = "dataset", .value = [](const Settings& s) { return s.dataset; }},
        {.name = "batch size", .value = [](const Settings& s) { return fmt::format("{}", s.batch_size); }},
        {.name = "lr", .value = [](const Settings& s) { return fmt::format("{}", s.lr); }},
        {.name = "precision", .value = [](const Settings& s) { return s.precision; }},
        {.name = "format", .value = [](const Settings& s) { return std::string(to_string(s.format)); }}};
    for (const OptionAxis& one : option_axes()) {
      all.push_back({.name = one.name, .value = [&one](const Settings& s) { return s.option(one.option); }});
    }
    return all;
  }();
  return axes;
}

}  // namespace norma::lab
