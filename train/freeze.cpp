#include "train/freeze.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "data/json.h"
#include "models/parameter_depths.h"
#include "nn/freeze.h"
#include "train/memory_use.h"
#include "train/training_state.h"
#include "train/training_step.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

constexpr const char* kOp = "freeze";

std::string shortened(const std::string& hash) {
  constexpr size_t kDigits = 12;
  return hash.substr(0, kDigits) + "…";
}

/// While it lives, nothing of a network is frozen.
class Thawed : NotCopied {
 public:
  explicit Thawed(nn::Module& model) {
    for (auto& [name, x] : model.named_parameters()) {
      if (!x.requires_grad()) {
        parameters_.push_back(x);
        parameters_.back().set_requires_grad();
      }
    }
    for (const auto& [path, module] : model.named_modules()) {
      if (module->has_frozen_statistics()) {
        modules_.push_back(module);
        module->freeze_statistics(false);
      }
    }
  }
  ~Thawed() {
    for (Tensor& x : parameters_) {
      x.set_grad({});
      x.set_requires_grad(false);
    }
    for (nn::Module* module : modules_) {
      module->freeze_statistics();
    }
  }

 private:
  Tensors parameters_;
  std::vector<nn::Module*> modules_;
};

/// Brings back at its end what a step without an update changes.
class Untouched : NotCopied {
 public:
  explicit Untouched(TrainingState& run) : run_(run), random_(default_generator()) {
    for (const auto& [name, x] : run.model->named_buffers()) {
      buffers_.emplace_back(x, copy_of(x.detach()));
    }
    default_generator() = run.random;
  }
  ~Untouched() {
    for (const auto& [x, values] : buffers_) {
      copy_into(values, x.detach());
    }
    run_.model->zero_grad();
    run_.casts = {};  // of parameters that are frozen again
    default_generator() = random_;
    allocator(run_.model->device()).empty_cache();
  }

 private:
  TrainingState& run_;
  Generator random_;
  std::vector<std::pair<Tensor, Tensor>> buffers_;
};

struct Pass {
  double seconds = 0;
  int64_t kept = 0;
};

Pass forward_and_backward(TrainingState& run, const data::Batch& batch) {
  run.model->zero_grad();
  ActivationObserver seen(*run.model);
  std::unique_ptr<ObservedStep> observed;
  accumulate_gradients(
      run, 1, [&] { return batch; }, &seen, &observed);
  observed.reset();
  const auto start = std::chrono::steady_clock::now();
  run.model->zero_grad();
  accumulate_gradients(run, 1, [&] { return batch; });
  synchronize(run.model->device());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {.seconds = seconds.count(), .kept = MemoryUse{.activations = seen.activations()}.activation_bytes()};
}

int64_t bytes_of_gradients(const TrainingState& run) {
  return memory_use(*run.model, *run.optimizer, run.ema).gradients;
}

}  // namespace

void freeze(nn::Module& model, const Recipe& recipe) {
  auto patterns = mapped(recipe.freeze, [](const std::string& one) { return nn::FreezePattern{.pattern = one}; });
  std::ranges::copy(norm_policy_of(recipe).freeze, std::back_inserter(patterns));
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
  const auto layers =
      std::ranges::count_if(model.named_modules(), [](const auto& one) { return one.second->has_frozen_statistics(); });
  return fmt::format("{}: {} of {} parameters ({} of {} elements) and the statistics of {} norm{} stay as they are",
                     kOp, frozen, parameters, elements, model.parameter_count(), layers, layers == 1 ? "" : "s");
}

FreezeSavings measure_freeze_savings(TrainingState& run) {
  constexpr int64_t kMostImages = 32;
  const Recipe& recipe = run.recipe;
  const int64_t images = std::min(recipe.batch_size, kMostImages);
  const data::Batch batch = batch_of_zeros(recipe, images);
  FreezeSavings savings{.images = images};
  const Untouched untouched(run);
  run.model->train();
  savings.gradients = bytes_of_gradients(run);
  try {
    const Pass frozen = forward_and_backward(run, batch);
    const Thawed thawed(*run.model);
    savings.gradients_unfrozen = bytes_of_gradients(run);
    const Pass unfrozen = forward_and_backward(run, batch);
    savings.seconds = frozen.seconds;
    savings.kept = frozen.kept;
    savings.seconds_unfrozen = unfrozen.seconds;
    savings.kept_unfrozen = unfrozen.kept;
  } catch (const OutOfMemory&) {
    savings.fault = "too little memory for a step without frozen parts";
  } catch (const std::bad_alloc&) {
    savings.fault = "too little memory for a step without frozen parts";
  } catch (const Error& error) {  // a batch norm that is no longer frozen may want more images than there are
    savings.fault = error.what();
  }
  return savings;
}

std::string to_string(const FreezeSavings& savings) {
  if (!savings.fault.empty()) {
    return fmt::format("freeze: what a step saves was not measured: {}", savings.fault);
  }
  return fmt::format(
      "freeze: forward and backward of {} images take {:.3g} s in place of {:.3g} s, and keep {} in place of {}; "
      "gradients take {} in place of {}, and so does each average of the optimizer",
      savings.images, savings.seconds, savings.seconds_unfrozen, bytes_text(savings.kept),
      bytes_text(savings.kept_unfrozen), bytes_text(savings.gradients), bytes_text(savings.gradients_unfrozen));
}

std::string to_json(const FreezeSavings& savings) {
  using Json = nlohmann::ordered_json;
  return data::json_text(savings.fault.empty() ? Json{{"images", savings.images},
                                                      {"seconds", savings.seconds},
                                                      {"seconds_unfrozen", savings.seconds_unfrozen},
                                                      {"kept_bytes", savings.kept},
                                                      {"kept_bytes_unfrozen", savings.kept_unfrozen},
                                                      {"gradient_bytes", savings.gradients},
                                                      {"gradient_bytes_unfrozen", savings.gradients_unfrozen}}
                                               : Json{{"fault", savings.fault}});
}

}  // namespace norma::train
