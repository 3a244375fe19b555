#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "data/json.h"
#include "lab/report/report.h"
#include "lab/studies/study.h"
#include "lab/telemetry/telemetry.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

// A comparison as JSON, and back.

namespace norma::lab {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "norma comparison ";
/// Version 1: cells had only model, norm and seed, and took the rest from the recipe; timings had a model.
constexpr int64_t kVersion = 2;

constexpr std::array kStates = {CellState::pending, CellState::finished, CellState::failed, CellState::interrupted,
                                CellState::elsewhere};
constexpr std::array kMemoryFormats = {MemoryFormat::contiguous, MemoryFormat::channels_last};

/// The one of `all` that has this name.
template <class List>
auto value_named(std::string_view where, std::string_view field, const List& all, const std::string& name) {
  const auto to_text = [](auto value) { return std::string(to_string(value)); };
  const auto found = std::ranges::find(all, name, to_text);
  check(found != all.end(), where, "{}: expected {}, got '{}'", field, or_list(mapped(all, to_text)), excerpt(name));
  return *found;
}

/// The settings of a timing_group().
Json group_to_json(const Settings& group) {
  Json json = {{"model", group.model},
               {"batch_size", group.batch_size},
               {"precision", group.precision},
               {"memory_format", to_string(group.format)},
               {"dataset", group.dataset}};
  if (!group.options.empty()) {
    json["options"] = group.options;
  }
  return json;
}

/// The values of option_axes(), each of which must be one of its option.
void read_options(const nlohmann::json& json, const std::string& where, Settings& settings) {
  settings.options.clear();
  if (!json.contains("options")) {
    return;
  }
  const auto& options = json.at("options");
  check(options.is_object(), where, "options: expected an object, got {}", options.type_name());
  for (const auto& [name, value] : options.items()) {
    const auto known =
        std::ranges::find_if(option_axes(), [&name = name](const OptionAxis& axis) { return name == axis.option; });
    check(known != option_axes().end(), where, "options: expected the name of an axis, got '{}'", excerpt(name));
    const auto word = data::json_field<std::string>(where, options, name);
    train::Recipe recipe;
    take_option(recipe, where, name, word);
    settings.options[name] = word;
  }
}

/// `settings` provides the fields that the first version lacks.
void read_group(const nlohmann::json& json, const std::string& where, int64_t version, Settings& settings) {
  settings.model = data::json_field<std::string>(where, json, "model");
  if (version == 1) {
    return;
  }
  settings.batch_size = data::json_field<int64_t>(where, json, "batch_size");
  settings.precision = data::json_field<std::string>(where, json, "precision");
  settings.format =
      value_named(where, "memory_format", kMemoryFormats, data::json_field<std::string>(where, json, "memory_format"));
  settings.dataset = data::json_field<std::string>(where, json, "dataset");
  check_range(where, "batch_size", settings.batch_size, train::ranges::kBatchSize);
  read_options(json, where, settings);
}

/// Reads a field that may be missing.
template <class T>
void read_if_there(const nlohmann::json& json, const std::string& where, const char* name, T& value) {
  if (json.contains(name)) {
    value = data::json_field<T>(where, json, name);
  }
}

/// Visits the figures of a finished cell that are not negative.
template <class AnyCell, class F>
void each_figure(AnyCell& cell, const F& figure) {
  figure("images_per_second", cell.images_per_second);
  figure("seconds", cell.seconds);
  figure("peak_bytes", cell.peak_bytes);
  figure("peak_resident", cell.peak_resident);
  figure("parameters", cell.parameters);
}

Json settings_to_json(const Settings& settings) {
  Json json = group_to_json(settings);
  json["norm"] = settings.norm;
  json["seed"] = settings.seed;
  json["lr"] = settings.lr;
  return json;
}

void read_settings(const nlohmann::json& json, const std::string& where, int64_t version, Settings& settings) {
  read_group(json, where, version, settings);
  settings.norm = data::json_field<std::string>(where, json, "norm");
  settings.seed = data::json_field<uint64_t>(where, json, "seed");
  if (version > 1) {
    settings.lr = data::json_field<double>(where, json, "lr");
    check_range(where, "lr", settings.lr, train::ranges::kLr);
  }
}

/// A placeholder for a record until the text is made; inside another value its quotation marks would have backslashes.
constexpr std::string_view kElsewhere = "@";
constexpr std::string_view kElsewhereInText = "\"telemetry\": \"@\"";

/// Puts each record in its place on one line: a line for each number would double the file.
std::string with_telemetry(std::string_view text, const std::vector<Cell>& cells) {
  const size_t start = text.find("\n \"cells\":");  // only there a line begins like this
  std::string result(text.substr(0, start));
  text.remove_prefix(start);
  for (const Cell& cell : cells) {
    if (cell.telemetry) {
      const size_t at = text.find(kElsewhereInText);
      result += text.substr(0, at);
      result += "\"telemetry\": " + data::json_text(telemetry_to_json(*cell.telemetry));
      text.remove_prefix(at + kElsewhereInText.size());
    }
  }
  return result.append(text);
}

Json cell_to_json(const Cell& cell) {
  Json json = settings_to_json(cell);
  json["state"] = to_string(cell.state);
  if (!cell.reason.empty()) {
    json["reason"] = cell.reason;
  }
  if (cell.from_outside) {
    json["from_outside"] = true;
  }
  if (cell.state == CellState::finished) {
    json["accuracy"] = cell.accuracy;
    json["loss"] = cell.loss;
    each_figure(cell, [&](const char* name, const auto& value) { json[name] = value; });
    json["losses"] = cell.losses;
    if (cell.fit) {
      json["fit"] = {{"images", cell.fit->images}, {"accuracy", cell.fit->accuracy}, {"loss", cell.fit->loss}};
      if (cell.fit->classes > 0) {
        json["fit"]["classes"] = cell.fit->classes;
      }
    }
    if (!cell.right.empty()) {
      json["right"] = {{"images", cell.right.size()}, {"bits", train::to_hex(cell.right)}};
    }
  }
  if (cell.telemetry) {
    json["telemetry"] = kElsewhere;
  }
  return json;
}

Json tuning_to_json(const Tuning& tuning) {
  Json json = settings_to_json(tuning.settings);
  json["trials"] = mapped(tuning.trials, [](const Trial& trial) {
    Json one = {{"lr", trial.lr}};
    one[trial.loss ? "loss" : "reason"] = trial.loss ? Json(*trial.loss) : Json(trial.reason);
    return one;
  });
  return json;
}

Tuning tuning_from_json(const nlohmann::json& json, const std::string& where) {
  Tuning tuning;
  read_settings(json, where, kVersion, tuning.settings);
  check(json.contains("trials") && json["trials"].is_array(), where, "trials: expected a list, got {}",
        json.contains("trials") ? data::json_excerpt(json["trials"]) : "none");
  for (const nlohmann::json& one : json["trials"]) {
    Trial trial{.lr = data::json_field<double>(where, one, "lr")};
    check_range(where, "lr", trial.lr,
                norma::Range<double>{.low = 0, .high = std::numeric_limits<double>::max(), .with_low = false});
    if (one.contains("loss")) {
      trial.loss = data::json_field<std::optional<double>>(where, one, "loss");  // null: not finite, in older files
    } else {
      trial.reason = data::json_field<std::string>(where, one, "reason");
    }
    tuning.trials.push_back(std::move(trial));
  }
  return tuning;
}

/// Missing fields mean a comparison without tuning.
void read_tunings(const nlohmann::json& json, const std::string& where, Comparison& comparison) {
  if (!json.contains("tunings")) {
    return;
  }
  comparison.tune_lr = true;
  const nlohmann::json& tunings = json["tunings"];
  check(tunings.is_array(), where, "tunings: expected a list, got {}", data::json_excerpt(tunings));
  for (size_t i = 0; i < tunings.size(); ++i) {
    comparison.tunings.push_back(tuning_from_json(tunings[i], fmt::format("{}: tuning {}", where, i + 1)));
  }
}

/// The right answers of a cell, whose accuracy is read.
train::ImageBits read_right(const nlohmann::json& json, const std::string& where, double accuracy) {
  train::ImageBits right = train::image_bits_from_hex(where, data::json_field<int64_t>(where, json, "images"),
                                                      data::json_field<std::string>(where, json, "bits"));
  const auto images = static_cast<double>(right.size());
  const auto count = static_cast<double>(train::count_right(right));
  check(std::abs(count / images - accuracy) * images < 0.5, where,
        "bits: expected {} right answers of {}, as the accuracy {} says, got {}", std::round(accuracy * images), images,
        accuracy, count);
  return right;
}

double read_loss(const nlohmann::json& json, const std::string& where) {
  // JSON has no NaN: null stands for it.
  return data::json_field<std::optional<double>>(where, json, "loss")
      .value_or(std::numeric_limits<double>::quiet_NaN());
}

/// Throws Error unless the accuracy is one.
void check_accuracy(double accuracy, const std::string& where) {
  check(accuracy >= 0 && accuracy <= 1, where, "accuracy: expected a number from 0 to 1, got {}", accuracy);
}

Fit read_fit(const nlohmann::json& json, const std::string& where) {
  Fit fit{.images = data::json_field<int64_t>(where, json, "images"),
          .accuracy = data::json_field<double>(where, json, "accuracy"),
          .loss = read_loss(json, where)};
  check(fit.images >= 1, where, "images: expected at least 1, got {}", fit.images);
  check_accuracy(fit.accuracy, where);
  if (json.contains("classes")) {
    fit.classes = data::json_field<int64_t>(where, json, "classes");
    check_range(where, "classes", fit.classes, train::ranges::kClasses);
  }
  return fit;
}

/// `defaults` come from the comparison's recipe.
Cell cell_from_json(const nlohmann::json& json, const std::string& where, int64_t version, const Settings& defaults) {
  Cell cell;
  static_cast<Settings&>(cell) = defaults;
  read_settings(json, where, version, cell);
  cell.state = value_named(where, "state", kStates, data::json_field<std::string>(where, json, "state"));
  read_if_there(json, where, "reason", cell.reason);
  read_if_there(json, where, "from_outside", cell.from_outside);
  if (cell.state == CellState::finished) {
    cell.accuracy = data::json_field<double>(where, json, "accuracy");
    cell.loss = read_loss(json, where);
    each_figure(cell, [&]<class T>(const char* name, T& value) {
      value = data::json_field<T>(where, json, name);
      check(value >= 0, where, "{}: expected at least 0, got {}", name, value);
    });
    cell.losses = data::json_numbers(where, json, "losses");
    check_accuracy(cell.accuracy, where);
    if (json.contains("fit")) {
      cell.fit = read_fit(json["fit"], where + ": fit");
    }
    if (json.contains("right")) {
      cell.right = read_right(json["right"], where + ": right", cell.accuracy);
    }
  }
  if (json.contains("telemetry")) {
    cell.telemetry = telemetry_from_json(json["telemetry"], where + ": telemetry");
  }
  return cell;
}

Json timing_to_json(const Timing& timing) {
  Json json = group_to_json(timing.group);
  json["norms"] = timing.norms;
  json["rounds"] = timing.rounds;
  if (!timing.problem.empty()) {
    json["problem"] = timing.problem;
  }
  return json;
}

Timing timing_from_json(const nlohmann::json& json, const std::string& where, int64_t version,
                        const Settings& defaults) {
  Timing timing{.group = timing_group(defaults), .norms = {}, .rounds = {}, .problem = {}};
  read_group(json, where, version, timing.group);
  timing.norms = data::json_field<std::vector<std::string>>(where, json, "norms");
  read_if_there(json, where, "problem", timing.problem);
  using Rounds = std::vector<std::vector<std::optional<double>>>;  // null stands for NaN
  for (const auto& round : data::json_field<Rounds>(where, json, "rounds")) {
    check(round.size() == timing.norms.size(), where, "rounds: expected {} numbers in each, one for each norm, got {}",
          timing.norms.size(), round.size());
    std::vector<double>& seconds = timing.rounds.emplace_back();
    for (const std::optional<double>& one : round) {
      check(!one || *one > 0, where, "rounds: expected seconds above 0, got {}", one.value_or(0));
      seconds.push_back(one.value_or(std::numeric_limits<double>::quiet_NaN()));
    }
  }
  return timing;
}

/// Missing fields mean a comparison without timing.
void read_timings(const nlohmann::json& json, const std::string& where, int64_t version, Comparison& comparison) {
  if (!json.contains("timing_rounds")) {
    return;
  }
  comparison.timing_rounds = data::json_field<int64_t>(where, json, "timing_rounds");
  check_range(where, "timing_rounds", comparison.timing_rounds, train::ranges::kStepsOrNone);
  const nlohmann::json& timings = json.contains("timings") ? json["timings"] : nlohmann::json::array();
  check(timings.is_array(), where, "timings: expected a list, got {}", data::json_excerpt(timings));
  for (size_t i = 0; i < timings.size(); ++i) {
    const std::string place = fmt::format("{}: timing {}", where, i + 1);
    Timing timing = timing_from_json(timings[i], place, version, settings_of(comparison.recipe));
    const std::vector<std::string> norms = norms_of(comparison, timing.group);
    check(timing.norms == norms, place, "norms: expected those of the cells, [{}], got [{}]", fmt::join(norms, ", "),
          excerpt(fmt::format("{}", fmt::join(timing.norms, ", "))));
    for (const Timing& other : comparison.timings) {
      check(other.group != timing.group, place, "expected each once, got {} twice",
            group_label(comparison, timing.group));
    }
    comparison.timings.push_back(std::move(timing));
  }
}

Json origin_to_json(const PartOrigin& origin) {
  return {{"number", origin.number},
          {"date", origin.date},
          {"command", origin.command},
          {"environment", Json::parse(train::to_json(origin.environment))}};
}

/// Missing fields mean a comparison that was not divided.
void read_parts(const nlohmann::json& json, const std::string& where, Comparison& comparison) {
  if (!json.contains("part_count")) {
    return;
  }
  comparison.part_count = data::json_field<int64_t>(where, json, "part_count");
  check(comparison.part_count >= 1, where, "part_count: expected at least 1, got {}", comparison.part_count);
  check(comparison.part_count <= static_cast<int64_t>(comparison.cells.size()), where,
        "part_count: expected at most {}, one for each cell, got {}", comparison.cells.size(), comparison.part_count);
  check(json.contains("parts") && json["parts"].is_array() && !json["parts"].empty(), where,
        "parts: expected a list of at least one");
  for (const nlohmann::json& one : json["parts"]) {
    const std::string place = fmt::format("{}: part {}", where, comparison.parts.size() + 1);
    PartOrigin origin{.number = data::json_field<int64_t>(place, one, "number")};
    const int64_t before = comparison.parts.empty() ? 0 : comparison.parts.back().number;
    check(origin.number > before && origin.number <= comparison.part_count, place,
          "number: expected one from {} to {}, got {}", before + 1, comparison.part_count, origin.number);
    origin.date = data::json_field<std::string>(place, one, "date");
    origin.command = data::json_field<std::string>(place, one, "command");
    check(one.contains("environment"), place, "environment: missing");
    origin.environment = train::environment_from_json(data::json_text(one["environment"]), place + ": environment");
    comparison.parts.push_back(std::move(origin));
  }
}

/// Comparison::source_classes and Comparison::sources.
Json source_to_json(const Comparison& comparison) {
  return {{"classes", comparison.source_classes},
          {"networks", mapped(comparison.sources, [](const SourceNetwork& one) {
             return Json{{"model", one.model}, {"accuracy", one.accuracy}, {"sha256", one.sha256}};
           })}};
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
    check_accuracy(source.accuracy, place);
    comparison.sources.push_back(source);
  }
}

}  // namespace

int64_t version_of(const std::string& format, std::string_view kind, int64_t latest, const std::string& where) {
  const std::string_view digits = std::string_view(format).substr(std::min(kind.size(), format.size()));
  const int64_t version = parse_number<int64_t>(digits).value_or(0);
  check(format.starts_with(kind) && version >= 1, where, "format: expected '{}{}', got '{}'", kind, latest,
        excerpt(format));
  check(version <= latest, where,
        "format: expected a version up to {}, got {}: a newer Norma has written this, and this one cannot read it",
        latest, version);
  return version;
}

std::string to_json(const Comparison& comparison) {
  Json json = {{"format", fmt::format("{}{}", kFormat, kVersion)},
               {"date", comparison.date},
               {"command", comparison.command},
               {"environment", Json::parse(train::to_json(comparison.environment))},
               {"recipe", Json::parse(train::to_json(comparison.recipe))}};
  json["cells"] = mapped(comparison.cells, cell_to_json);
  if (comparison.timing_rounds > 0) {
    json["timing_rounds"] = comparison.timing_rounds;
    json["timings"] = mapped(comparison.timings, timing_to_json);
  }
  if (comparison.tune_lr) {
    json["tunings"] = mapped(comparison.tunings, tuning_to_json);
  }
  if (comparison.part_count > 0) {
    json["part_count"] = comparison.part_count;
    json["parts"] = mapped(comparison.parts, origin_to_json);
  }
  const auto put = [&](const char* name, const auto& value, bool is_there) {
    if (is_there) {
      json[name] = value;
    }
  };
  put("telemetry", false, !comparison.telemetry);
  put("dynamics", to_string(comparison.dynamics), comparison.dynamics.any());
  put("study", comparison.study, !comparison.study.empty());
  put("study_text", comparison.study_text, !comparison.study_text.empty());
  put("budget", comparison.budget, comparison.budget > 0);
  put("initial_checkpoint_sha256", comparison.initial_sha256, !comparison.initial_sha256.empty());
  put("source", source_to_json(comparison), !comparison.source_classes.empty());
  return with_telemetry(data::json_text(json, 1) + "\n", comparison.cells);
}

Comparison comparison_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the comparison", text);
  const int64_t version = version_of(data::json_field<std::string>(where, json, "format"), kFormat, kVersion, where);
  for (const char* part : {"environment", "recipe", "cells"}) {
    check(json.contains(part), where, "{}: missing", part);
  }
  Comparison comparison;
  comparison.date = data::json_field<std::string>(where, json, "date");
  comparison.command = data::json_field<std::string>(where, json, "command");
  comparison.environment = train::environment_from_json(data::json_text(json["environment"]), where + ": environment");
  comparison.recipe = train::recipe_from_json(data::json_text(json["recipe"]), where + ": recipe");
  const nlohmann::json& cells = json["cells"];
  check(cells.is_array(), where, "cells: expected a list, got {}", data::json_excerpt(cells));
  check(!cells.empty(), where, "cells: expected at least one, got none");
  std::set<std::string> seen;
  for (size_t i = 0; i < cells.size(); ++i) {
    Cell cell =
        cell_from_json(cells[i], fmt::format("{}: cell {}", where, i + 1), version, settings_of(comparison.recipe));
    check(seen.insert(data::json_text(settings_to_json(cell))).second, where,
          "cell {}: expected each once, got {} with norm {} and seed {} twice", i + 1, excerpt(cell.model),
          excerpt(cell.norm), cell.seed);
    comparison.cells.push_back(std::move(cell));
  }
  read_timings(json, where, version, comparison);
  read_tunings(json, where, comparison);
  read_parts(json, where, comparison);
  read_if_there(json, where, "telemetry", comparison.telemetry);
  if (json.contains("dynamics")) {
    comparison.dynamics = parse_dynamics(where, data::json_field<std::string>(where, json, "dynamics"));
  }
  read_if_there(json, where, "study", comparison.study);
  read_if_there(json, where, "study_text", comparison.study_text);
  if (!comparison.study_text.empty()) {
    study_from_toml(comparison.study_text, where + ": study_text", comparison.study);
  }
  read_if_there(json, where, "budget", comparison.budget);
  check(comparison.budget > 0 || !json.contains("budget"), where, "budget: expected seconds above 0, got {}",
        comparison.budget);
  read_if_there(json, where, "initial_checkpoint_sha256", comparison.initial_sha256);
  if (json.contains("source")) {
    read_source(json["source"], where + ": source", comparison);
  }
  return comparison;
}

}  // namespace norma::lab
