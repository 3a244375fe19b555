#include "train/average.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/tape.h"
#include "data/safetensors.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "train/dataset_notes.h"
#include "train/training_state.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

constexpr const char* kOp = "average";

/// Throws Error for the first difference from the tensors of the first file.
void check_same_tensors(const std::filesystem::path& file, const data::NamedTensors& tensors,
                        const std::filesystem::path& first_file, const data::NamedTensors& first) {
  for (size_t i = 0; i < std::max(first.size(), tensors.size()); ++i) {
    if (i >= tensors.size()) {
      fail(kOp, "{}: tensor '{}' of {} is missing", file.string(), excerpt(first[i].first), first_file.string());
    }
    if (i >= first.size()) {
      fail(kOp, "{}: tensor '{}': {} has none of this name", file.string(), excerpt(tensors[i].first),
           first_file.string());
    }
    const auto& [name, x] = tensors[i];
    const auto& [first_name, y] = first[i];
    check(name == first_name, kOp, "{}: tensor '{}': expected '{}', as in {}", file.string(), excerpt(name),
          excerpt(first_name), first_file.string());
    check(x.sizes() == y.sizes(), kOp, "{}: tensor '{}': expected sizes {}, as in {}, got {}", file.string(),
          excerpt(name), to_string(y.sizes()), first_file.string(), to_string(x.sizes()));
    check(x.dtype() == y.dtype(), kOp, "{}: tensor '{}': expected dtype {}, as in {}, got {}", file.string(),
          excerpt(name), to_string(y.dtype()), first_file.string(), to_string(x.dtype()));
  }
}

data::NamedTensors sorted(data::NamedTensors tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return tensors;
}

/// None if the library wrote the checkpoint without a recipe.
std::optional<Recipe> recipe_in(const Checkpoint& checkpoint) {
  return checkpoint.options.contains(kRecipeKey) ? std::optional(recipe_of(checkpoint)) : std::nullopt;
}

/// Throws Error for checkpoints of other networks, which may have tensors of the same names and sizes.
void check_same_model(const std::filesystem::path& file, const Checkpoint& checkpoint,
                      const std::filesystem::path& first_file, const Checkpoint& first) {
  for (const auto& [name, text, expected] :
       {std::tuple("model", checkpoint.model_name, first.model_name), {"norm", checkpoint.norm, first.norm}}) {
    check(text == expected, kOp, "{}: {}: expected '{}', as in {}, got '{}'", file.string(), name, excerpt(expected),
          first_file.string(), excerpt(text));
  }
  const std::optional<Recipe> recipe = recipe_in(checkpoint);
  const std::optional<Recipe> first_recipe = recipe_in(first);
  if (recipe && first_recipe) {
    check(recipe->conv_layer == first_recipe->conv_layer, kOp, "{}: conv-layer: expected '{}', as in {}, got '{}'",
          file.string(), first_recipe->conv_layer, first_file.string(), recipe->conv_layer);
    check(recipe->norm_policy == first_recipe->norm_policy, kOp, "{}: norm-policy: expected that of {}, got another",
          file.string(), first_file.string());
  }
  const std::vector<std::string> classes = class_names_of(checkpoint);
  const std::vector<std::string> first_classes = class_names_of(first);  // earlier versions kept none
  check(classes.empty() || first_classes.empty() || classes == first_classes, kOp,
        "{}: expected the classes of {}, in their order, got others", file.string(), first_file.string());
}

/// A checkpoint's own description; for weights alone an empty one, at step -1.
Checkpoint description_of(const std::filesystem::path& file) {
  if (is_checkpoint(file)) {
    return load_checkpoint_metadata(file);
  }
  Checkpoint none;
  none.step = -1;
  return none;
}

}  // namespace

Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files, const WeightsOptions& options) {
  check(!files.empty(), kOp, "expected checkpoints, got none");
  const NoGradGuard no_grad;
  Checkpoint newest = description_of(files.front());
  const Checkpoint first = newest;
  data::NamedTensors like;    // of the first file, in its order
  data::NamedTensors sums;    // sorted by name
  data::NamedTensors latest;  // of the newest file, sorted
  for (const std::filesystem::path& file : files) {
    Checkpoint described = description_of(file);
    check((described.step < 0) == (first.step < 0), kOp, "{}: expected {}, as {} is, got {}", file.string(),
          first.step < 0 ? "weights only" : "a checkpoint", files.front().string(),
          first.step < 0 ? "a checkpoint" : "weights only");
    check_same_model(file, described, files.front(), first);
    const data::NamedTensors tensors = load_weights(file, options).tensors;
    check_finite(kOp, file.string(), tensors);
    data::NamedTensors by_name = sorted(tensors);
    if (sums.empty()) {
      like = tensors;
      for (const auto& [name, x] : by_name) {
        sums.emplace_back(name, is_floating(x.dtype()) ? copy_of(x, MemoryFormat::contiguous, DType::float64) : x);
      }
    } else {
      check_same_tensors(file, by_name, files.front(), sorted(like));
      for (size_t i = 0; i < by_name.size(); ++i) {
        if (is_floating(by_name[i].second.dtype())) {
          add_(sums[i].second, to(by_name[i].second, DType::float64));
        }
      }
    }
    if (latest.empty() || described.step >= newest.step) {
      latest = std::move(by_name);
      newest = std::move(described);
    }
  }
  for (const auto& [name, x] : like) {
    const auto at = std::lower_bound(sums.begin(), sums.end(), name,
                                     [](const auto& tensor, const std::string& key) { return tensor.first < key; });
    const auto i = static_cast<size_t>(at - sums.begin());
    newest.model.emplace_back(name, is_floating(x.dtype())
                                        ? to(div(at->second, static_cast<double>(files.size())), x.dtype())
                                        : latest[i].second);
  }
  newest.metric.reset();
  newest.best.reset();
  std::vector<std::string> names;
  for (const std::filesystem::path& file : files) {
    names.push_back(file.string());
  }
  newest.options[kAveragedKey] = fmt::format("{}", fmt::join(names, ", "));
  return newest;
}

}  // namespace norma::train
