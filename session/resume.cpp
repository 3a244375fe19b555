#include "session/resume.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/sha256.h"
#include "core/version.h"
#include "models/registry.h"
#include "session/environment.h"
#include "session/output.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

/// The value for people.
std::string shown(const RecipeOption& option, const Recipe& recipe) {
  const std::vector<std::string> items = option.items(recipe);
  const std::string text = fmt::format("{}", fmt::join(items, ","));
  if (std::holds_alternative<FileField>(option.field)) {
    return items.empty() ? kNone : fmt::format("that of '{}'", text);
  }
  if (option.is_switch()) {
    return text == "true" ? "on" : "off";
  }
  if (option.is_text()) {
    return items.empty() ? kNone : fmt::format("'{}'", excerpt(text));
  }
  return items.empty() ? "the model's own" : text;
}

/// True iff both have the same value; for a file, the same text under any name.
bool is_same(const RecipeOption& option, const Recipe& a, const Recipe& b) {
  const auto* file = std::get_if<FileField>(&option.field);
  return file != nullptr ? a.*(file->at) == b.*(file->at) : option.items(a) == option.items(b);
}

Recipe with_norm(Recipe recipe) {
  recipe.norm = norm_of(recipe);
  return recipe;
}

/// The SHA-256 of some images over the whole data set, with their labels.
std::string fingerprint(const data::Dataset& images) {
  constexpr int64_t kSamples = 16;
  const int64_t size = images.info().size;
  std::string bytes;
  data::Image image;
  for (int64_t i = 0; i < std::min(kSamples, size); ++i) {
    const int64_t label = images.load(i * size / std::min(kSamples, size), image);
    bytes += fmt::format("{} {} {} ", label, image.height, image.width);
    bytes.append(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size());
  }
  return sha256(bytes);
}

std::string fingerprint(const nn::NamedTensors& tensors) {
  std::string of_each;
  for (const auto& [name, x] : tensors) {
    of_each += sha256_of(x);
  }
  return sha256(of_each);
}

std::vector<std::pair<std::string, std::string>> parsed(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = std::min(line.find('\t'), line.size() - 1);
    result.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return result;
}

}  // namespace

void check_same_run(const Recipe& before, const Recipe& now) {
  const Recipe first = with_norm(before);
  const Recipe second = with_norm(now);
  for (const RecipeOption& option : recipe_options()) {
    // A ViT has a parameter for each place of an image.
    const bool is_size = option.name == "img-size" && models::model_takes(first.model, "global_pool");
    if ((option.on_resume == OnResume::another_run || is_size) && !is_same(option, first, second)) {
      const std::string was = shown(option, first);
      const std::string is = shown(option, second);
      fail("resume", "{}: the run was started with {}, and cannot go on with {}", option.name, was,
           std::holds_alternative<FileField>(option.field) && is == was ? "another text in that file" : is);
    }
  }
}

void check_changes_count(const Recipe& before, const Recipe& now, int64_t steps) {
  Recipe heeded = now;
  for (const RecipeOption& option : recipe_options()) {
    if (option.on_resume == OnResume::always) {
      option.give(before, heeded);
    }
  }
  const std::vector<std::string> changes = differences(before, heeded);
  check(changes.empty(), "resume",
        "the run is complete after {} steps, and would not heed {}: --epochs or --images make it longer", steps,
        fmt::format("{}", fmt::join(changes, ", ")));
}

void check_data_dir(std::string_view op, const Recipe& of_checkpoint, const Recipe& now) {
  const std::string& folder = of_checkpoint.data_dir;
  check(folder.empty() || now.data_dir != folder || path_exists(op, folder), op,
        "data-dir: there is no '{}', as the checkpoint has it: --data-dir says where it is", folder);
}

std::string resume_run(TrainingState& run, const Checkpoint& checkpoint) {
  if (!checkpoint.options.contains(kRecipeKey)) {
    return run.resume(checkpoint);
  }
  const Recipe before = recipe_of(checkpoint);
  check_same_run(before, run.recipe);
  std::string change = run.resume(checkpoint);
  if (run.step == run.total_steps()) {
    check_changes_count(before, run.recipe, run.step);
  }
  return change;
}

std::string rate_jump(const TrainingState& run, const Recipe& before) {
  const StepPlan old = plan_of(before, run.train_set);
  const int64_t in_old = std::min(run.step, old.total_steps() - 1);
  const double was = base_lr(before) * make_schedules(before, old.total_steps(), old.steps_per_epoch()).lr(in_old);
  return run.lr(run.step) > 2 * was ? fmt::format("{:.2g} → {:.2g}", was, run.lr(run.step)) : "";
}

std::string facts_of(const TrainingState& run) {
  std::vector<std::pair<std::string, std::string>> all{
      {"version", std::string(version())},
      {"libraries", versions_json()},
      {"byte order", std::endian::native == std::endian::little ? "little endian" : "big endian"},
      {"training images", fmt::format("{} of {}", run.train_set->info().size, run.train_set->info().name)},
      {"contents of the training images", fingerprint(*run.train_set)},
      {"contents of the test images", fingerprint(*run.test_set)},
      {"step", std::to_string(run.step)},
      {"weights", fingerprint(run.model->named_parameters())}};
  std::istringstream recipe(to_toml(run.recipe));
  for (std::string line; std::getline(recipe, line);) {
    if (const size_t sign = line.find(" = "); sign != std::string::npos && !line.starts_with("data-dir")) {
      all.emplace_back("--" + line.substr(0, sign), line.substr(sign + 3));
    }
  }
  std::string text;
  for (const auto& [name, value] : all) {
    text += fmt::format("{}\t{}\n", name, value);
  }
  return text;
}

std::string difference_of_facts(const std::string& first, const std::string& other) {
  const auto expected = parsed(first);
  const auto got = parsed(other);
  for (const auto& [name, value] : expected) {
    const auto found = std::ranges::find(got, name, &std::pair<std::string, std::string>::first);
    if (found == got.end() || found->second != value) {
      return fmt::format("{}: expected {}, as rank 0 has, got {}", name, excerpt(value),
                         found == got.end() ? "none" : excerpt(found->second));
    }
  }
  for (const auto& [name, value] : got) {
    if (!is_in(expected, name, &std::pair<std::string, std::string>::first)) {
      return fmt::format("{}: expected none, as rank 0 has, got {}", name, excerpt(value));
    }
  }
  return "";
}

void check_processes_agree(const TrainingState& run) {
  if (run.processes.alone()) {
    return;
  }
  const std::vector<std::string> all = run.processes.group().all_gather_text(facts_of(run));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::string other = difference_of_facts(all[0], all[rank]);
    check(other.empty(), "train", "rank {}: {}", rank, other);
  }
}

}  // namespace norma::train
