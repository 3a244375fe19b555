#include "lab/compare/request.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "lab/compare/budget.h"
#include "lab/report/settings.h"
#include "lab/studies/study.h"
#include "lab/telemetry/dynamics_parts.h"
#include "train/recipe_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

namespace norma::lab {

namespace {

using train::as_text;
using train::into;
using train::OptionRow;
using Part = train::RecipePart;
using Request = ComparisonRequest;
using Words = std::vector<std::string>;

constexpr const char* kNetwork = "Network";
constexpr const char* kOfImages = "Images";
constexpr const char* kOptimization = "Optimization";
constexpr const char* kRunning = "Running";
constexpr const char* kTime = "a time as 90s, 15m or 2h";

train::Recipe default_recipe() {
  train::Recipe recipe;
  recipe.images = 25600;
  return recipe;
}

/// An option that all runs share.
OptionRow of_recipe(const train::RecipeOption& option, Request& request) {
  OptionRow row = option.row(default_recipe());
  row.begin = [&option, &request] { option.clear(request.value); };
  row.take = [&option, &request](const std::string& word) {
    const bool fits = option.take(request.value, word);
    option.give(request.value, request.options.recipe);
    return fits;
  };
  return row;
}

/// A list of values of an option of the recipe.
OptionRow axis(Words names, const train::RecipeOption& option) {
  OptionRow row = option.row(default_recipe());
  row.names = std::move(names);
  row.value_name = "LIST";
  row.is_list = true;
  row.excludes.clear();
  return row;
}

/// An axis with a member of its own, for texts or numbers.
template <class T>
OptionRow axis(Words names, const char* of, std::vector<T>& values) {
  const train::RecipeOption& option = train::recipe_option(of);
  OptionRow row = axis(std::move(names), option);
  row.begin = [&values] { values.clear(); };
  row.take = [&values, &option](const std::string& word) {
    if constexpr (std::is_same_v<T, std::string>) {
      return into(values.emplace_back())(word);
    } else {
      return into(values.emplace_back(), std::get<train::NumberField<T>>(option.field).range)(word);
    }
  };
  return row;
}

/// An axis of option_axes() that is an option of the recipe.
OptionRow axis(Words names, const train::RecipeOption& option, Words& words) {
  OptionRow row = axis(std::move(names), option);
  row.expected = option.is_text() ? option.expected : "numbers in its range";
  row.begin = [&words] { words.clear(); };
  row.take = [&option, &words](const std::string& word) {
    train::Recipe recipe;
    const bool fits = option.take(recipe, word);
    if (fits) {
      option.check_value(recipe);
      words.push_back(word);
    }
    return fits;
  };
  return row;
}

/// One that comparisons alone have; the first of its values is the default.
OptionRow axis(Words names, const char* heading, const char* help, const Words& values, Words& words) {
  const auto take = [&values, &words](const std::string& word) {
    words.push_back(word);
    return std::ranges::find(values, word) != values.end();
  };
  return {.names = std::move(names),
          .heading = heading,
          .value_name = "LIST",
          .expected = or_list(values),
          .help = help,
          .take = take,
          .otherwise = values.front(),
          .choices = values,
          .begin = [&words] { words.clear(); },
          .is_list = true};
}

/// The word for a value, what it must be, and its default.
struct ValueText {
  std::string name;
  std::string expected;
  std::string otherwise = {};
  Words choices = {};
};

/// An option with one value, or a switch.
OptionRow row(const char* name, const char* heading, std::string help, std::function<bool(const std::string&)> take,
              ValueText value = {}, Words excludes = {}) {
  return {.names = {name},
          .heading = heading,
          .value_name = std::move(value.name),
          .expected = std::move(value.expected),
          .help = std::move(help),
          .take = std::move(take),
          .otherwise = std::move(value.otherwise),
          .choices = std::move(value.choices),
          .excludes = std::move(excludes)};
}

OptionRow with_opposite(OptionRow row) {
  row.has_opposite = true;
  return row;
}

OptionRow with_default(OptionRow row, const char* otherwise) {
  row.otherwise = otherwise;
  return row;
}

auto into_seconds(double& seconds) {
  return [&seconds](const std::string& word) {
    seconds = parse_duration(word);
    return seconds > 0;
  };
}

OptionRow study_row(Request& request) {
  std::string help =
      "a grid that answers a question, where nothing else is said; a file of your own (docs/studies.md), or one of";
  Words names;
  for (const Study& study : studies()) {
    help += fmt::format("{} {} ({})", names.empty() ? "" : ",", study.name, study.question);
    names.push_back(study.name);
  }
  return row("study", kNetwork, help, as_text([&](const std::string& name) {
               study_named(name);  // an unknown name, or a file that is none, is an error of the command line
               request.study = name;
             }),
             {.name = "NAME|FILE.toml", .expected = "a name", .choices = names});
}

OptionRow seeds_row(std::vector<uint64_t>& seeds) {
  const Range<uint64_t>& range = train::ranges::kSeed;
  OptionRow seed = row("seed", kNetwork, "of start values and image order; several show the spread",
                       [&](const std::string& word) { return into(seeds.emplace_back(), range)(word); },
                       {.name = "LIST", .expected = to_string(range), .otherwise = "0"});
  seed.names = {"seed", "seeds"};
  seed.begin = [&seeds] { seeds.clear(); };
  seed.is_list = true;
  return seed;
}

/// The models, norms and seeds, and how the grid is run.
std::vector<OptionRow> grid(Request& request) {
  ComparisonOptions& options = request.options;
  const Range<int64_t>& rounds = train::ranges::kStepsOrNone;
  return {
      with_default(axis({"model", "models"}, "model", options.models), "resnet50,convnext_atto"),
      with_default(axis({"norm", "norms"}, "norm", options.norms), "batch,layer2d,group"),
      seeds_row(options.seeds),
      row("timing-rounds", kNetwork, "training steps in which the norms of a model take turns: they show the tax",
          into(options.timing_rounds, rounds),
          {"N", to_string(rounds), fmt::format("{}", ComparisonOptions{}.timing_rounds)}),
      row("budget", kOfImages, "make the runs as long as lets all of it end within this time, instead of --images",
          into_seconds(request.budget), {"TIME", kTime}, {"epochs", "images"}),
      row("tune-lr", kOptimization,
          "first try a quarter, half, twice and four times the learning rate for each norm in short runs",
          into(options.tune_lr)),
      study_row(request),
      row("lr-scaling", kOptimization,
          "how the learning rate, which is for batches of 128, follows the batch size: none, sqrt, linear",
          as_text([&](const std::string& name) { options.lr_scaling = lr_scaling_from_string(name); }),
          {"NAME", "a name", "none", {"none", "sqrt", "linear"}}),
      row("quick", kNetwork,
          "a first page in about three minutes: --budget 165s, resnet18 and convnext_atto, batches of 64, 1000 test "
          "images, where nothing else is said",
          into(request.quick), {}, {"study"})};
}

OptionRow formats_row(std::vector<MemoryFormat>& formats) {
  const auto take = [&formats](const std::string& word) {
    formats.push_back(word == "contiguous" ? MemoryFormat::contiguous : MemoryFormat::channels_last);
    return word == to_string(formats.back());
  };
  OptionRow format =
      row("format", kOfImages, "order of activations in memory: contiguous is N, C, H, W; channels_last is N, H, W, C",
          take, {"LIST", "contiguous or channels_last", "channels_last", {"contiguous", "channels_last"}});
  format.names = {"format", "formats"};
  format.begin = [&formats] { formats.clear(); };
  format.is_list = true;
  return format;
}

/// The axes beside models, norms, seeds and precisions.
std::vector<OptionRow> further(Request& request) {
  ComparisonOptions& options = request.options;
  const auto take_format = [&formats = options.formats](const std::string& word) {
    formats = {word == "true" ? MemoryFormat::channels_last : MemoryFormat::contiguous};
    return true;
  };
  std::vector<OptionRow> rows{
      axis({"data", "dataset", "datasets"}, "dataset", options.datasets),
      axis({"b", "batch-size", "batch-sizes"}, "batch-size", options.batch_sizes), formats_row(options.formats),
      with_opposite(row("channels-last", kOfImages, "short for --format channels_last", take_format, {}, {"formats"})),
      axis({"lr", "lrs"}, "lr", options.lrs)};
  for (const OptionAxis& one : option_axes()) {
    const std::string name = one.option;
    Words names = name == one.flag ? Words{name} : Words{name, one.flag};
    Words& words = options.options[name];  // an empty list is no axis
    if (one.words.empty()) {
      rows.push_back(axis(std::move(names), train::recipe_option(name), words));
    } else if (name == kWeights) {
      rows.push_back(axis(std::move(names), kOptimization,
                          "weights that are tested: the last ones, their moving average with that of batch norm's "
                          "statistics, or with statistics that are made anew for it",
                          one.words, words));
    } else {
      rows.push_back(axis(std::move(names), "Weights at the start",
                          "where runs start: from random weights, or from those of --initial-checkpoint or of a run on "
                          "the other classes beside --classes: norms kept, kept with frozen statistics, or converted "
                          "(docs/finetune.md)",
                          one.words, words));
    }
  }
  return rows;
}

/// Where the comparison runs, and what it leaves.
std::vector<OptionRow> running(Request& request) {
  ComparisonOptions& options = request.options;
  return {row("output", kRunning, "folder for the report",
              as_text([&](const std::string& folder) { options.output = folder; }),
              {"FOLDER", "a path", "runs/compare-<date>-<time>"}),
          row("resume", kRunning, "do what is left of the comparison in this folder", into(request.resume),
              {"FOLDER", "a path"}, {"output"}),
          row("part", kRunning,
              "make the K-th of N shares of the runs, which take about equally long; norma report puts the folders "
              "together",
              as_text([&](const std::string& text) { request.part = parse_part(text); }), {"K/N", "K/N, as 2/4"}),
          row("checkpoint-interval", kRunning,
              "time between two checkpoints of a run, from which it goes on when it was cut",
              into_seconds(options.checkpoint_seconds), {"TIME", kTime, "60s"}),
          with_opposite(row("telemetry", kRunning,
                            "record curves, where time and memory go, copies and the numbers in each layer; evaluate "
                            "each epoch [on]",
                            into(options.telemetry))),
          row("dynamics", kRunning, dynamics_help(),
              as_text([&](const std::string& text) { options.dynamics = parse_dynamics("compare", text); }),
              {.name = "LIST", .expected = "a list of names", .choices = dynamics_choices()})};
}

}  // namespace

ComparisonRequest::ComparisonRequest() {
  options.recipe = default_recipe();
  options.models = {"resnet50", "convnext_atto"};
  options.norms = {"batch", "layer2d", "group"};
}

bool ComparisonRequest::has(const std::vector<std::string_view>& names) const {
  return std::ranges::any_of(names, [&](std::string_view name) { return given.contains(name); });
}

std::vector<std::string> ComparisonRequest::given_recipe_options() const {
  Words names;
  std::ranges::copy_if(given, std::back_inserter(names), [](const std::string& name) {
    const train::RecipeOption* option = train::find_recipe_option(name);
    return option != nullptr && !option->is_switch();
  });
  return names;
}

std::vector<train::OptionRow> option_rows(ComparisonRequest& request) {
  std::vector<OptionRow> rows;
  const auto add = [&](std::vector<OptionRow> more) { std::ranges::move(more, std::back_inserter(rows)); };
  std::vector<std::string_view> axes{"dataset", "batch-size", "channels-last", "lr", "precision"};
  for (const OptionAxis& one : option_axes()) {
    axes.emplace_back(one.option);
  }
  const auto add_of_recipe = [&](const std::vector<Part>& parts) {
    for (const train::RecipeOption& option : train::recipe_options()) {
      if (std::ranges::find(parts, option.part) != parts.end() && std::ranges::find(axes, option.name) == axes.end()) {
        rows.push_back(of_recipe(option, request));
      }
    }
  };
  add(grid(request));
  add_of_recipe({Part::network});
  add(further(request));
  add_of_recipe({Part::data, Part::shape, Part::length, Part::augmentation, Part::update, Part::steps, Part::start});
  add({axis({"precision", "precisions"}, "precision", request.options.precisions)});
  add_of_recipe({Part::precision});
  add(running(request));
  for (OptionRow& row : rows) {
    row.begin = [&request, name = row.names.back(), begin = std::move(row.begin)] {
      request.given.insert(name);
      if (begin) {
        begin();
      }
    };
  }
  return rows;
}

void check_given_together(const std::vector<train::OptionRow>& rows, const ComparisonRequest& request) {
  for (const OptionRow& row : rows) {
    for (const std::string& other : row.excludes) {
      check(!request.has({row.names.back()}) || !request.has({other}), "compare", "--{} excludes --{}", other,
            row.names.back());
    }
  }
}

}  // namespace norma::lab
