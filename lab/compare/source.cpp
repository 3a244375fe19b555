#include "lab/compare/timing.h"

#include "base/error.h"
#include "base/input_file.h"
#include "base/lists.h"
#include "base/sha256.h"
#include "core/allocator.h"
#include "models/registry.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "nn/norm/options.h"
#include "session/output.h"
#include "session/run_folder.h"
#include "session/trainer.h"
#include "train/checkpoint.h"
#include "train/processes.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace norma::lab {

namespace {

constexpr const char* kOp = "compare";

bool has_running_statistics(const nn::NormChoice& choice) {
  const auto norm = nn::make_norm(choice, nn::least_channels(choice));
  return std::ranges::any_of(norm->state_dict(), [](const auto& tensor) { return tensor.first == "running_mean"; });
}

/// What a start expects and does not find, given the norm `from` of the weights; "" if nothing is missing.
std::string obstacle(const Settings& settings, const std::string& from) {
  const std::string start = settings.option(kStart);
  const nn::NormChoice norm = models::complete_norm(settings.model, settings.norm);
  const nn::NormChoice before = models::complete_norm(settings.model, from);
  if (start == "frozen" && !has_running_statistics(norm)) {
    return fmt::format("expected a norm with running statistics, got {}", settings.norm);
  }
  if (start == "fold" && !has_running_statistics(before)) {
    return fmt::format("expected weights whose norm has running statistics, got {}", from);
  }
  if (converts_norms(settings) && to_string(norm) == to_string(before)) {
    return fmt::format("expected another norm than {}, which the weights have, got {}", from, settings.norm);
  }
  return "";
}

/// The classes of the dataset that are not those of the runs.
std::vector<int64_t> other_classes(const ComparisonOptions& options) {
  check(!options.recipe.classes.empty(), kOp,
        "start: expected --initial-checkpoint with the weights, or --classes, beside which a network is trained on the "
        "other classes, got neither");
  check(options.datasets.size() == 1, kOp, "start: expected one dataset, got {}", options.datasets.size());
  train::Recipe recipe = options.recipe;
  recipe.classes.clear();
  recipe.train_images = 0;
  recipe.dataset = options.datasets.front();
  const data::DatasetInfo info = train::make_dataset(recipe, data::Split::train)->info();
  std::vector<int64_t> others;
  for (int64_t i = 0; i < info.num_classes(); ++i) {
    if (!is_in(options.recipe.classes, i)) {
      others.push_back(i);
    }
  }
  check(others.size() > 1, kOp, "start: expected --classes that leave two or more of the {} of {}, got {}",
        info.num_classes(), info.name, fmt::join(options.recipe.classes, ","));
  return others;
}

std::string sha256_of_weights(const train::Checkpoint& checkpoint) {
  std::string of_each;
  for (const auto& [name, x] : checkpoint.model) {
    of_each += name + " " + train::sha256_of(x) + "\n";
  }
  return sha256(of_each);
}

/// The checkpoint of a network in the output folder; none if it has not begun.
std::optional<train::Checkpoint> checkpoint_of(const std::filesystem::path& file, const train::Recipe& recipe) {
  if (!train::path_exists(kOp, file)) {
    return std::nullopt;
  }
  train::Checkpoint checkpoint = train::load_checkpoint(file);
  train::Recipe before = train::recipe_of(checkpoint);
  before.data_dir = recipe.data_dir;
  const std::vector<std::string> differences = train::differences(before, recipe);
  check(differences.empty(), kOp, "'{}' is of another run ({}): choose another output folder", file.string(),
        differences.front());
  return checkpoint;
}

/// The SHA-256 of the network that runs of a model begin with; "" if there is none yet.
std::string sha256_of(const Comparison& comparison, const std::string& model) {
  const auto known = std::ranges::find(comparison.sources, model, &SourceNetwork::model);
  return known == comparison.sources.end() ? "" : known->sha256;
}

/// Throws Error if runs have finished that began with another network than that of now.
void check_same_source(const Comparison& comparison, const std::string& model, const std::string& before,
                       const std::string& now) {
  const bool used = std::ranges::any_of(comparison.cells, [&](const Cell& cell) {
    return cell.model == model && cell.state == CellState::finished && starts_from_weights(cell);
  });
  check(!used || before.empty() || before == now, kOp,
        "'{}' has other weights (SHA-256 {}) than finished runs began with ({}): choose another output folder",
        source_file(model), now.substr(0, 16), before.substr(0, 16));
}

void make_source(const std::string& model, Comparison& comparison, const ComparisonOptions& options) {
  const train::Recipe recipe = source_recipe(comparison, model);
  const std::filesystem::path file = options.output / source_file(model);
  const std::string label = fmt::format("[start] {} batch, classes {}", model, fmt::join(recipe.classes, ","));
  train::TrainerOptions trainer{.workers = options.workers,
                                .log_interval = options.log_interval,
                                .evaluate_each_epoch = false,
                                .quiet = options.quiet,
                                .label = label,
                                .group = options.group};
  if (options.group->is_first()) {
    trainer.output = file.parent_path();
    trainer.resumed = file;
  }
  std::optional<train::Trainer> run;
  train::do_together(*options.group, [&] {
    if (const std::optional<train::Checkpoint> checkpoint = checkpoint_of(file, recipe)) {
      run.emplace(recipe, trainer, *checkpoint);
    } else {
      trainer.resumed.clear();
      run.emplace(recipe, trainer);
    }
  });
  const train::TrainResult result = run->run();
  if (result.finished) {
    comparison.sources.push_back(
        {.model = model, .accuracy = result.test.accuracy, .sha256 = sha256_of_weights(run->shared_checkpoint())});
    if (!options.quiet) {
      train::say("{}: test accuracy {:.2f} %\n", label, 100 * result.test.accuracy);
    }
  }
}

}  // namespace

bool starts_from_weights(const Settings& settings) {
  const std::string start = settings.option(kStart);
  return !start.empty() && start != kScratch;
}

bool converts_norms(const Settings& settings) {
  const std::string start = settings.option(kStart);
  return start == "fold" || start == "calibrate";
}

int64_t half_passes_to_calibrate(const nn::Module& network) {
  int64_t halves = 2;  // one pass of the old network
  for (const auto& [path, module] : network.named_modules()) {
    if (dynamic_cast<const nn::Norm*>(module) != nullptr) {
      const bool running =
          std::ranges::any_of(module->own_buffers(), [](const auto& buffer) { return buffer.first == "running_var"; });
      halves += running ? 2 : 1;
    }
  }
  return halves;
}

int64_t half_passes_of_conversion(const Settings& settings, int64_t to_calibrate) {
  constexpr int64_t kComparing = 4;  // one pass of each network
  if (!converts_norms(settings)) {
    return 0;
  }
  return kComparing + (settings.option(kStart) == "calibrate" ? to_calibrate : 0);
}

std::vector<std::string> source_models(const Comparison& comparison) {
  std::vector<std::string> models;
  for (const Cell& cell : comparison.cells) {
    if (!comparison.source_classes.empty() && starts_from_weights(cell)) {
      add_once(models, cell.model);
    }
  }
  return models;
}

std::string initial_sha256(const std::string& file) {
  return sha256(read_text_file("initial-checkpoint", file, std::numeric_limits<int64_t>::max()));
}

void plan_starts(const ComparisonOptions& options, Comparison& comparison, std::vector<Settings>& settings) {
  const std::string& file = options.recipe.initial_checkpoint;
  if (!file.empty()) {
    comparison.initial_sha256 = initial_sha256(file);
  }
  if (std::ranges::none_of(settings, starts_from_weights)) {
    return;
  }
  std::map<std::string, std::string> norms;  // of the weights for each model
  for (const std::string& model : options.models) {
    train::Recipe recipe = options.recipe;
    recipe.model = model;
    std::string& norm = norms[model];
    norm = file.empty() ? "batch" : train::initial_norm(recipe);
    norm = norm.empty() ? models::own_norm(model) : norm;
  }
  if (file.empty()) {
    comparison.source_classes = other_classes(options);
  }
  std::vector<Settings> left;
  std::vector<std::pair<Settings, std::string>> out;
  for (const Settings& one : settings) {
    const std::string missing = obstacle(one, norms[one.model]);
    if (missing.empty()) {
      left.push_back(one);
    } else {
      out.emplace_back(one, missing);
    }
  }
  for (const auto& [one, missing] : out) {
    const auto has = [&](auto&& value) {
      return std::ranges::any_of(left, [&](const Settings& other) { return value(other) == value(one); });
    };
    check(has([](const Settings& s) { return s.option(kStart); }) && has([](const Settings& s) { return s.norm; }), kOp,
          "start: {}: {}", one.option(kStart), missing);
  }
  settings = std::move(left);
}

void make_sources(Comparison& comparison, const ComparisonOptions& options) {
  if (comparison.source_classes.empty()) {
    return;
  }
  train::do_in_first(*options.group, [&] {
    for (const SourceNetwork& source : comparison.sources) {
      const std::filesystem::path file = options.output / source_file(source.model);
      if (train::path_exists(kOp, file)) {
        check_same_source(comparison, source.model, source.sha256, sha256_of_weights(train::load_checkpoint(file)));
      }
    }
  });
  for (const Cell& cell : comparison.cells) {
    const bool known = !sha256_of(comparison, cell.model).empty();
    const bool is_there = known && train::path_exists(kOp, options.output / source_file(cell.model));
    if (!is_here(cell) || cell.state == CellState::finished || !starts_from_weights(cell) ||
        train::of_first(*options.group, is_there)) {
      continue;
    }
    const std::string before = sha256_of(comparison, cell.model);
    std::erase_if(comparison.sources, [&](const SourceNetwork& source) { return source.model == cell.model; });
    make_source(cell.model, comparison, options);
    if (train::interrupted()) {
      return;
    }
    check_same_source(comparison, cell.model, before, sha256_of(comparison, cell.model));
    allocator(default_device()).empty_cache();  // the next network's memory must be neither warm nor cold
    train::do_in_first(*options.group, [&] { write_report(comparison, options.output, options.lock); });
  }
}

train::Recipe with_source(train::Recipe recipe, const Comparison& comparison, const ComparisonOptions& options) {
  if (!comparison.source_classes.empty() && !recipe.initial_checkpoint.empty()) {
    recipe.initial_checkpoint = options.output / recipe.initial_checkpoint;
  }
  return recipe;
}

}  // namespace norma::lab
