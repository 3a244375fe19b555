#include "train/checkpoint.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/parse_number.h"
#include "data/json.h"
#include "data/tensor_file.h"
#include "models/registry.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace norma::train {

namespace {

constexpr const char* kOp = "checkpoint";
constexpr const char* kVersionKey = "norma_checkpoint";
constexpr const char* kVersion = "1";
constexpr std::string_view kOptimizerPrefix = "optimizer.";
constexpr std::string_view kEmaPrefix = "ema.";

using Metadata = std::map<std::string, std::string>;

const std::string& text_of(const std::string& file, const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  check(found != metadata.end(), kOp, "{}: metadata '{}' is missing", file, key);
  return found->second;
}

template <class T>
T number_of(const std::string& file, const Metadata& metadata, const char* key) {
  const std::string& text = text_of(file, metadata, key);
  const std::optional<T> value = parse_number<T>(text);
  check(value.has_value(), kOp, "{}: metadata '{}': expected a whole number, got '{}'", file, key, excerpt(text));
  return *value;
}

/// A number from 0 to 1.
double share_of(const std::string& file, const Metadata& metadata, const char* key) {
  const std::string& text = text_of(file, metadata, key);
  const std::optional<double> value = parse_number<double>(text);
  check(value && *value >= 0 && *value <= 1, kOp, "{}: metadata '{}': expected a number from 0 to 1, got '{}'", file,
        key, excerpt(text));
  return *value;
}

/// Visits the whole numbers and the texts of a checkpoint by their keys in the metadata.
template <class C, class F>
void visit_fields(C& checkpoint, const F& visit) {
  visit("step", checkpoint.step);
  visit("epoch", checkpoint.epoch);
  visit("seed", checkpoint.seed);
  visit("generator_seed", checkpoint.generator_seed);
  visit("generator_offset", checkpoint.generator_offset);
  visit("model", checkpoint.model_name);
  visit("norm", checkpoint.norm);
}

/// Everything of a checkpoint but its tensors.
void read_metadata(const std::string& file, const Metadata& metadata, Checkpoint& checkpoint) {
  check(metadata.contains(kVersionKey), kOp, "{}: expected a checkpoint, got a file with weights only", file);
  const std::string& version = metadata.at(kVersionKey);
  check(version == kVersion, kOp, "{}: expected a checkpoint of version {}, got version {}", file, kVersion,
        excerpt(version));

  visit_fields(checkpoint, [&]<class T>(const char* key, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value = text_of(file, metadata, key);
    } else {
      value = number_of<T>(file, metadata, key);
    }
  });
  check(checkpoint.step >= 0, kOp, "{}: metadata 'step': expected at least 0, got {}", file, checkpoint.step);
  check(checkpoint.epoch >= 0 && checkpoint.epoch <= checkpoint.step, kOp,
        "{}: metadata 'epoch': expected a number from 0 to {}, the step, got {}", file, checkpoint.step,
        checkpoint.epoch);
  const std::string where = fmt::format("{}: {}", kOp, file);
  const std::string key = "metadata 'options'";
  checkpoint.options =
      data::json_as<Metadata>(where, key, data::parse_json(where, key, text_of(file, metadata, "options")));
  if (metadata.contains("metric")) {
    checkpoint.metric = share_of(file, metadata, "metric");
  }
  if (metadata.contains("best_metric")) {
    checkpoint.best = {.metric = share_of(file, metadata, "best_metric"),
                       .step = number_of<int64_t>(file, metadata, "best_step"),
                       .epoch = number_of<int64_t>(file, metadata, "best_epoch")};
  }
}

/// A checkpoint's tensors, each in its part.
Checkpoint split(const data::NamedTensors& tensors) {
  Checkpoint parts;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(kOptimizerPrefix)) {
      parts.optimizer.emplace_back(name.substr(kOptimizerPrefix.size()), tensor);
    } else if (name.starts_with(kEmaPrefix)) {
      parts.ema.emplace_back(name.substr(kEmaPrefix.size()), tensor);
    } else {
      parts.model.emplace_back(name, tensor);
    }
  }
  return parts;
}

/// What a file has beside the weights: each tensor that stands alone, and counts of those below a common name, which is
/// the first that differs from the weights' prefix.
std::vector<std::string> others_in(const models::FoundWeights& found) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& name : found.left_out) {
    const auto [at, differs] = std::ranges::mismatch(name, found.prefix);
    const size_t begin = name.rfind('.', static_cast<size_t>(at - name.begin())) + 1;  // 0 where there is none
    groups[name.substr(0, name.find('.', begin))].push_back(name);
  }
  return mapped(groups, [](const auto& group) {
    const auto& [name, names] = group;
    return names.size() == 1 ? names[0] : fmt::format("{} ({} tensors)", excerpt(name), names.size());
  });
}

}  // namespace

void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint) {
  data::NamedTensors tensors;
  for (const auto& [name, tensor] : checkpoint.model) {
    for (const std::string_view prefix : {kOptimizerPrefix, kEmaPrefix}) {
      check(!name.starts_with(prefix), kOp, "{}: tensor '{}': the name of a model's tensor must not begin with {}",
            file.string(), name, prefix);
    }
    tensors.emplace_back(name, tensor);
  }
  for (const auto& [name, tensor] : checkpoint.optimizer) {
    tensors.emplace_back(std::string(kOptimizerPrefix) + name, tensor);
  }
  for (const auto& [name, tensor] : checkpoint.ema) {
    tensors.emplace_back(std::string(kEmaPrefix) + name, tensor);
  }
  std::string options;
  try {
    options = data::json_text(nlohmann::json(checkpoint.options));
  } catch (const nlohmann::json::exception&) {
    fail(kOp, "{}: options must be UTF-8", file.string());
  }
  Metadata metadata = {{kVersionKey, kVersion}, {"options", options}};
  visit_fields(checkpoint, [&](const char* key, const auto& value) { metadata[key] = fmt::format("{}", value); });
  if (checkpoint.metric) {
    metadata["metric"] = fmt::format("{}", *checkpoint.metric);
  }
  if (checkpoint.best) {
    metadata["best_metric"] = fmt::format("{}", checkpoint.best->metric);
    metadata["best_step"] = std::to_string(checkpoint.best->step);
    metadata["best_epoch"] = std::to_string(checkpoint.best->epoch);
  }
  data::save_safetensors(file, tensors, metadata);
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  data::Safetensors content = data::load_safetensors(path);
  Checkpoint checkpoint = split(content.tensors);
  read_metadata(path.string(), content.metadata, checkpoint);
  return checkpoint;
}

Checkpoint load_checkpoint_metadata(const std::filesystem::path& path) {
  Checkpoint checkpoint;
  read_metadata(path.string(), data::load_safetensors_metadata(path), checkpoint);
  return checkpoint;
}

bool is_checkpoint(const std::filesystem::path& file) {
  return weights_metadata(file).contains(kVersionKey);
}

std::map<std::string, std::string> weights_metadata(const std::filesystem::path& file) {
  return data::is_pytorch_file(file) ? Metadata() : data::load_safetensors_metadata(file);
}

LoadedWeights load_weights(const std::filesystem::path& file, const WeightsOptions& options) {
  const bool of_pytorch = data::is_pytorch_file(file);
  data::Safetensors content = of_pytorch ? data::load_pytorch_file(file) : data::load_safetensors(file);
  LoadedWeights result;
  bool averages = options.use_ema;
  bool own = false;  // of a registered network, of which a known one may be a part
  if (!of_pytorch) {
    result.metadata = std::move(content.metadata);
  }
  if (result.metadata.contains(kVersionKey)) {
    Checkpoint parts = split(content.tensors);
    check(!averages || !parts.ema.empty(), kOp,
          "{}: expected averages of the weights (norma train --model-ema), got none", file.string());
    content.tensors = averages ? std::move(parts.ema) : std::move(parts.model);
    averages = false;
    own = options.prefix.empty() && !options.model.empty() && !models::is_built_in(options.model) &&
          result.metadata["model"] == options.model;
  }
  const std::string others = excerpt_list(content.left_out);
  check(!content.tensors.empty(), kOp, "{}: expected tensors, got none{}{}", file.string(),
        others.empty() ? "" : ", beside ", others);
  models::FoundWeights found =
      own ? models::FoundWeights{.tensors = content.tensors,
                                 .in_file = mapped(content.tensors, [](const auto& x) { return x.first; })}
          : models::find_weights(file.string(), content.tensors,
                                 {.averages = averages, .has_dicts = of_pytorch, .prefix = options.prefix});
  for (size_t i = 0; i < found.tensors.size(); ++i) {
    auto& [name, x] = found.tensors[i];
    if (nn::is_counter(name) && is_floating(x.dtype())) {  // of a network whose every tensor was halved
      const bool is_count = x.numel() == 1 && std::isfinite(x.to_vector<double>()[0]);
      x = is_count ? to(x, DType::int64) : Tensor();
    }
    if (x.defined()) {
      result.as_they_are = result.as_they_are && name == found.in_file[i];
      result.in_file.push_back(found.in_file[i]);
      result.tensors.emplace_back(name, x);
    } else {
      found.left_out.push_back(found.in_file[i]);
    }
  }
  result.dialect = found.dialect;
  std::vector<std::string> left_out = others_in(found);
  left_out.insert(left_out.begin(), content.left_out.begin(), content.left_out.end());
  result.as_they_are = result.as_they_are && left_out.empty();
  result.text =
      fmt::format("{}{}{}", found.dialect ? fmt::format(", under names of {}", models::to_string(*found.dialect)) : "",
                  found.prefix.empty() ? "" : fmt::format(", behind '{}'", excerpt(found.prefix)),
                  left_out.empty() ? "" : "; left out: " + excerpt_list(left_out));
  return result;
}

std::string class_names_text(const data::DatasetInfo& dataset) {
  try {
    return data::json_text(nlohmann::json(dataset.class_names));
  } catch (const nlohmann::json::exception&) {
    fail("checkpoint", "class names of dataset '{}' must be UTF-8", dataset.name);
  }
}

std::string normalization_text(const data::DatasetInfo& dataset) {
  const auto of_channels = [](const std::vector<float>& values) {  // a grey image is three times the same
    return values.size() == 1 ? std::vector<float>(3, values[0]) : values;
  };
  return data::json_text(nlohmann::json{{"mean", of_channels(dataset.mean)}, {"std", of_channels(dataset.std)}});
}

std::string normalization_of(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.option(kNormalizationKey);
  if (!text) {
    return "";
  }
  const nlohmann::json json = data::parse_json("checkpoint", kNormalizationKey, *text);
  return data::json_text(nlohmann::json{{"mean", data::json_field<std::vector<double>>("checkpoint", json, "mean")},
                                        {"std", data::json_field<std::vector<double>>("checkpoint", json, "std")}});
}

std::vector<std::string> class_names_of(const Checkpoint& checkpoint) {
  const std::string text = checkpoint.option(kClassNamesKey).value_or("[]");
  return data::json_as<std::vector<std::string>>("checkpoint", kClassNamesKey,
                                                 data::parse_json("checkpoint", kClassNamesKey, text));
}

std::string class_difference(const std::vector<std::string>& of_training, const data::DatasetInfo& dataset) {
  const std::vector<std::string>& now = dataset.class_names;
  if (of_training.empty() || of_training == now) {
    return "";
  }
  if (of_training.size() != now.size()) {
    return fmt::format("the network was trained on {} classes, and dataset '{}' has {}", of_training.size(),
                       dataset.name, now.size());
  }
  size_t first = 0;
  size_t count = 0;
  for (size_t i = now.size(); i-- > 0;) {
    if (now[i] != of_training[i]) {
      first = i;
      ++count;
    }
  }
  return fmt::format(
      "{} of {} classes have other names than in training: class {} was '{}' and is '{}' in dataset '{}'", count,
      now.size(), first, excerpt(of_training[first]), excerpt(now[first]), dataset.name);
}

}  // namespace norma::train
