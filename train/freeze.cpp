#include "train/freeze.h"

#include "base/error.h"
#include "core/copy.h"
#include "data/json.h"
#include "models/parameter_depths.h"
#include "nn/freeze.h"
#include "nn/norm/policy.h"
#include "train/training_state.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace norma::train {

namespace {

constexpr const char* kOp = "freeze";

std::string shortened(const std::string& hash) {
  constexpr size_t kDigits = 12;
  return hash.substr(0, kDigits) + "…";
}

}  // namespace

void freeze(nn::Module& model, const Recipe& recipe) {
  std::vector<nn::FreezePattern> patterns;
  for (const std::string& pattern : recipe.freeze) {
    patterns.push_back({.pattern = pattern});
  }
  if (!recipe.norm_policy.empty()) {
    const nn::NormPolicy policy = nn::parse_norm_policy(recipe.norm_policy, recipe.norm_policy_file);
    patterns.insert(patterns.end(), policy.freeze.begin(), policy.freeze.end());
  }
  nn::freeze(model, patterns);
  if (!recipe.reset_head) {
    return;
  }
  const std::string head = models::classifier_path(model) + ".";
  for (const auto& [name, x] : nn::frozen_tensors(model)) {
    norma::check(!name.starts_with(head), "train",
                 "reset-head: expected a classifier that is trained, as it is made anew, got the frozen {}", name);
  }
}

FrozenTensors::FrozenTensors(const nn::Module& model) {
  for (const auto& [name, x] : nn::frozen_tensors(model)) {
    hashes_[name] = sha256_of(x);
  }
}

FrozenTensors::FrozenTensors(const std::string& json)
    : hashes_(data::json_as<std::map<std::string, std::string>>("checkpoint", kFrozenKey,
                                                                data::parse_json("checkpoint", kFrozenKey, json))) {}

std::set<std::string> FrozenTensors::names() const {
  std::set<std::string> names;
  for (const auto& [name, hash] : hashes_) {
    names.insert(name);
  }
  return names;
}

std::string FrozenTensors::json() const {
  return data::json_text(nlohmann::json(hashes_));
}

void FrozenTensors::check(const TrainingState& run) const {
  if (empty()) {
    return;
  }
  const auto by_name = [](const nn::NamedTensors& tensors) {
    return std::map<std::string, Tensor>(tensors.begin(), tensors.end());
  };
  const std::map<std::string, Tensor> now = by_name(run.model->state_dict());
  std::map<std::string, Tensor> averages;
  std::map<std::string, Tensor> wide;
  if (run.ema) {  // only averages are compared with the wide tensors, which 16 bits must be converted for
    averages = by_name(run.ema->averages());
    wide = by_name(run.wide_state());
  }
  for (const auto& [name, hash] : hashes_) {
    const auto found = now.find(name);
    norma::check(found != now.end(), kOp, "'{}' was frozen at the start, and is no tensor of the network", name);
    const std::string current = sha256_of(found->second);
    norma::check(current == hash, kOp, "'{}' is frozen and has changed: its SHA-256 is {}, and was {} at the start",
                 name, shortened(current), shortened(hash));
    if (const auto average = averages.find(name); average != averages.end()) {
      norma::check(sha256_of(average->second) == sha256_of(wide.at(name)), kOp,
                   "'{}' is frozen, and its moving average has drifted from it", name);
    }
  }
}

std::string frozen_text(const nn::Module& model) {
  int64_t parameters = 0;
  int64_t frozen = 0;
  int64_t elements = 0;
  for (const auto& [name, x] : model.named_parameters()) {
    ++parameters;
    if (!x.requires_grad()) {
      ++frozen;
      elements += x.numel();
    }
  }
  int64_t layers = 0;
  for (const auto& [path, module] : model.named_modules()) {
    layers += module->has_frozen_statistics() ? 1 : 0;
  }
  return fmt::format("{}: {} of {} parameters ({} of {} elements) and the statistics of {} norm{} stay as they are",
                     kOp, frozen, parameters, elements, model.parameter_count(), layers, layers == 1 ? "" : "s");
}

}  // namespace norma::train
