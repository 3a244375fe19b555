#include "nn/optim/optimizer.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "nn/norm/norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace norma::nn {

namespace {

// x's values with the strides, dtype and device of `like`; x itself if it has them.
Tensor aligned(const Tensor& x, const Tensor& like) {
  if (x.strides() == like.strides() && x.dtype() == like.dtype() && x.device() == like.device()) {
    return x;
  }
  const Tensor y = empty_like(like);
  copy_into(x, y);
  return y;
}

// A state dict names a master weight by this prefix and the parameter's name.
const std::string kMaster = "master.";
// And the number of its updates by this one.
const std::string kStep = "step.";

// x's values in the strides of a parameter, in float32 for one of 16 bits.
Tensor wide_copy(const Tensor& x, const Tensor& parameter) {
  const DType dtype = compute_dtype(parameter.dtype());
  const Tensor y = empty_strided(parameter.sizes(), preserved_strides(parameter.sizes(), parameter.strides()),
                                 {.dtype = dtype, .device = parameter.device()});
  copy_into(x, y);
  return y;
}

/// The parameters that norm layers hold, and of each if it decays as weights of convolutions do.
std::map<std::string, bool> norm_parameters(const Module& module) {
  std::map<std::string, bool> decays;
  for (const auto& [path, layer] : module.named_modules()) {
    const auto* norm = dynamic_cast<const Norm*>(layer);
    if (norm == nullptr) {
      continue;
    }
    const std::vector<std::string> decaying = norm->decaying();
    for (const auto& [name, x] : layer->named_parameters()) {
      decays[join_names(path, name)] |= is_in(decaying, name);
    }
  }
  return decays;
}

bool is_bias(std::string_view name) {
  return name == "bias" || name.ends_with(".bias");
}

}  // namespace

Tensors gradients_of(const Tensors& parameters) {
  return filtered(mapped(parameters, &Tensor::grad), &Tensor::defined);
}

void Optimizer::check_not_negative(std::string_view op, std::string_view name, double value) {
  check(std::isfinite(value) && value >= 0, op, "{}: expected a finite number of at least 0, got {}", name, value);
}

Optimizer::Optimizer(std::vector<ParameterGroup> groups, double lr, double momentum)
    : groups_(std::move(groups)), lr_(lr), momentum_(momentum) {
  check_not_negative("optimizer", "lr", lr);
  std::unordered_set<const TensorImpl*> seen;
  std::unordered_set<std::string> names;
  for (const ParameterGroup& group : groups_) {
    check_not_negative("optimizer", "weight_decay", group.weight_decay);
    check_not_negative("optimizer", "lr_scale", group.lr_scale);
    for (const auto& [name, x] : group.parameters) {
      check_defined("optimizer", name, x);
      check(x.requires_grad() && x.is_leaf(), "optimizer", "{}: expected a leaf that requires a gradient", name);
      check(seen.insert(x.impl_pointer().get()).second && names.insert(name).second, "optimizer",
            "{}: expected every parameter once, got it twice", name);
      slots_.push_back({.name = name, .parameter = x, .group = &group});
    }
  }
}

Tensors Optimizer::parameters() const {
  return mapped(slots_, &Slot::parameter);
}

void Optimizer::set_grad_scale(double scale) {
  check(std::isfinite(scale) && scale > 0, "optimizer", "grad_scale: expected a finite positive number, got {}", scale);
  grad_scale_ = scale;
}

void Optimizer::zero_grad() {
  for (Tensor x : parameters()) {
    x.set_grad({});
  }
}

void Optimizer::Master::note_rounded_into(const Tensor& parameter) {
  storage = parameter.storage();
  version = parameter.version();
}

bool Optimizer::Master::is_current(const Tensor& parameter) const {
  return weight.defined() && storage.lock() == parameter.storage() && version == parameter.version();
}

Tensor Optimizer::Slot::begin_update() {
  if (!is_half(parameter.dtype())) {
    return is_non_overlapping_and_dense(parameter) ? parameter.detach() : copy_of(parameter.detach());
  }
  if (!master.is_current(parameter)) {
    master.weight = copy_of(parameter.detach(), MemoryFormat::preserve, DType::float32);
  }
  return master.weight;
}

void Optimizer::update_batch(const std::vector<Update>& updates, const std::vector<Pending>& pending) {
  Tensors from;
  Tensors to;
  for (size_t i = 0; i < updates.size(); ++i) {
    if (pending[i].gradient.defined()) {
      from.push_back(pending[i].gradient);
      to.push_back(updates[i].gradient);
    }
  }
  if (grad_scale_ == 1) {
    copy_all_into(from, to);
  } else if (!to.empty()) {  // in the dtype of the master weight: in float16 a gradient might become 0
    copy_all_into(from, to, full({}, 1 / grad_scale_, {.dtype = DType::float64, .device = to[0].device()}));
  }
  update(updates);
  from.clear();
  to.clear();
  for (size_t i = 0; i < updates.size(); ++i) {
    const Tensor& parameter = pending[i].slot->parameter;
    if (updates[i].parameter.storage() == parameter.storage()) {
      parameter.bump_version();
    } else {
      from.push_back(updates[i].parameter);
      to.push_back(parameter.detach());
    }
  }
  copy_all_into(from, to);
  for (const Pending& done : pending) {
    done.slot->master.note_rounded_into(done.slot->parameter);
  }
}

NamedTensors Optimizer::master_weights() const {
  NamedTensors result;
  for (const Slot& slot : slots_) {
    if (slot.master.is_current(slot.parameter)) {
      result.emplace_back(slot.name, slot.master.weight);
    }
  }
  return result;
}

void Optimizer::Slot::set_master(const Tensor& weight) {
  check_sizes("optimizer", "master." + name, weight, parameter.sizes());
  master.weight = wide_copy(weight, parameter);
  copy_into(master.weight, parameter.detach());
  master.note_rounded_into(parameter);
}

void Optimizer::set_master_weights(const NamedTensors& values) {
  const NoGradGuard no_grad;
  const std::unordered_map<std::string, Tensor> given(values.begin(), values.end());
  for (Slot& slot : slots_) {
    if (const auto found = given.find(slot.name); found != given.end() && is_half(slot.parameter.dtype())) {
      slot.set_master(found->second.detach());
    }
  }
}

void Optimizer::step() {
  ++steps_;  // begin_step() and update() make the numbers of this step
  try {
    make_step();
  } catch (...) {
    --steps_;
    throw;
  }
  std::ranges::for_each(slots_, &Slot::count_step);
}

void Optimizer::set_numbers() {
  std::vector<double> numbers;
  for (const Slot& slot : slots_) {
    const std::vector<double> own = numbers_of(*slot.group, slot.steps + 1);
    numbers.insert(numbers.end(), own.begin(), own.end());
  }
  const auto count = static_cast<int64_t>(numbers.size());
  const Device device = parameters().at(0).device();
  if (!numbers_.defined() || numbers_.numel() != count || numbers_.device() != device) {
    numbers_ = empty({count}, {.dtype = DType::float64, .device = device});
  }
  copy_from_host(from_vector(numbers, {count}, {.dtype = DType::float64, .device = kCpu}), numbers_);
}

void Optimizer::record_step(const Tensor& guard) {
  const Temporarily guarded(guard_, guard);  // ends also where the recording fails
  make_step();
}

void Optimizer::count_launched_step() {
  ++steps_;
  for (Slot& slot : slots_) {
    slot.count_step();
    slot.parameter.bump_version();
    slot.master.note_rounded_into(slot.parameter);
  }
}

void Optimizer::make_step() {
  const NoGradGuard no_grad;
  const OpPassGuard pass(OpPass::optimizer);
  begin_step();
  const size_t averages = state_names().size();
  // A GPU updates all parameters in one launch. Copies of gradients would need memory for all of them at once, so they
  // end a batch.
  constexpr double kMostCopied = 64 << 20;
  std::vector<Update> updates;
  std::vector<Pending> pending;
  double copied = 0;
  const auto finish = [&] {
    if (updates.empty()) {
      return;
    }
    update_batch(updates, pending);
    updates.clear();
    pending.clear();
    copied = 0;
  };
  for (Slot& slot : slots_) {
    const Tensor& gradient = slot.parameter.grad();
    slot.has_gradient = gradient.defined();
    if (!slot.has_gradient) {
      continue;
    }
    // The kernels run over memory, so all tensors must lie in one order. They nearly always do: gradients and averages
    // are made with their parameter's strides.
    const Tensor values = slot.begin_update();
    slot.state.resize(averages);
    for (Tensor& average : slot.state) {
      average = average.defined() ? aligned(average, values) : average;
    }
    const bool lies_alike = gradient.strides() == values.strides() && gradient.device() == values.device();
    const bool serves = lies_alike && gradient.dtype() == values.dtype() && grad_scale_ == 1;
    Update update{
        .parameter = values, .gradient = gradient, .state = &slot.state, .group = slot.group, .number = slot.steps + 1};
    if (guard_.defined()) {  // each slot has equally many numbers
      update.changing =
          numbers_.device_pointer<double>() + numbers_.numel() / std::ssize(slots_) * (&slot - slots_.data());
    }
    Pending rest{.slot = &slot, .gradient = {}};
    if (!serves) {
      rest.gradient = lies_alike || grad_scale_ == 1 ? gradient : aligned(gradient, values);
      update.gradient = empty_like(values);
      copied += bytes_of(values);
    }
    updates.push_back(std::move(update));
    pending.push_back(std::move(rest));
    if (copied > kMostCopied) {
      finish();
    }
  }
  finish();
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors dict(2);
  for (const auto& [name, weight] : master_weights()) {
    dict.emplace_back(kMaster + name, weight);
  }
  const auto number = [](int64_t value) {
    return from_vector<int64_t>({value}, {}, {.dtype = DType::int64, .device = kCpu});
  };
  const std::vector<std::string> names = state_names();
  for (const Slot& slot : slots_) {
    for (size_t s = 0; s < slot.state.size(); ++s) {
      if (slot.state[s].defined()) {
        dict.emplace_back(names[s] + "." + slot.name, slot.state[s]);
      }
    }
    if (slot.steps != steps_ && std::ranges::any_of(slot.state, &Tensor::defined)) {
      dict.emplace_back(kStep + slot.name, number(slot.steps));
    }
  }
  const auto states = static_cast<int64_t>(dict.size() - 2);  // the number of states shows a lost one
  dict[0] = {"step", number(steps_)};
  dict[1] = {"states", number(states)};
  return dict;
}

void Optimizer::load_state_dict(const NamedTensors& dict) {
  std::unordered_map<std::string, Tensor> given(dict.begin(), dict.end());
  std::vector<std::string> problems;
  const auto number_of = [&](const std::string& name) -> int64_t {  // 0 where there is a problem
    const auto found = given.find(name);
    if (found == given.end()) {
      problems.push_back("missing: " + name);
    } else if (found->second.numel() != 1 || found->second.dtype() != DType::int64) {
      problems.push_back(fmt::format("{}: expected one int64, got {}", name, describe(found->second)));
    } else {
      return found->second.item<int64_t>();
    }
    return 0;
  };
  const auto steps_in = [&](const std::string& name) {
    const int64_t steps = number_of(name);
    if (steps < 0) {
      problems.push_back(fmt::format("{}: expected at least 0, got {}", name, steps));
    }
    return steps;
  };
  const int64_t steps = steps_in("step");
  const int64_t expected_states = number_of("states");
  const std::vector<std::string> names = state_names();
  std::unordered_set<std::string> known{"step", "states"};
  std::vector<std::string> absent;
  int64_t present = 0;
  std::vector<int64_t> steps_of_slots;
  for (const Slot& slot : slots_) {
    const std::string own_steps = kStep + slot.name;
    known.insert(own_steps);
    present += given.contains(own_steps) ? 1 : 0;
    steps_of_slots.push_back(given.contains(own_steps) ? steps_in(own_steps) : steps);
    std::vector<std::string> kept = mapped(names, [](const std::string& state) { return state + "."; });
    if (is_half(slot.parameter.dtype())) {
      kept.push_back(kMaster);
    }
    for (const std::string& state : kept) {
      const std::string full = state + slot.name;
      known.insert(full);
      const auto found = given.find(full);
      if (found == given.end()) {
        absent.push_back(full);
        continue;
      }
      ++present;
      if (!(found->second.sizes() == slot.parameter.sizes())) {
        problems.push_back(fmt::format("{}: expected sizes {}, got {}", full, to_string(slot.parameter.sizes()),
                                       to_string(found->second.sizes())));
      } else if (!is_floating(found->second.dtype())) {
        problems.push_back(
            fmt::format("{}: expected a floating dtype, got {}", full, to_string(found->second.dtype())));
      }
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, x] : dict) {
    if (!known.contains(name)) {
      unexpected.push_back(name);
    }
  }
  if (!unexpected.empty()) {
    problems.insert(problems.begin(), fmt::format("unexpected: {}", excerpt_list(unexpected)));
  }
  if (problems.empty() && present != expected_states) {
    problems.push_back(fmt::format("missing: {} of {}", expected_states - present, excerpt_list(absent)));
  }
  check(problems.empty(), "optimizer.load_state_dict", "{}", excerpt_list(problems, "; ", /* limit= */ 800));

  steps_ = steps;
  for (Slot& slot : slots_) {
    slot.steps = 0;
    slot.state.assign(names.size(), {});
    for (size_t s = 0; s < names.size(); ++s) {
      if (const auto found = given.find(names[s] + "." + slot.name); found != given.end()) {
        slot.state[s] = wide_copy(found->second, slot.parameter);
        slot.steps = steps_of_slots[static_cast<size_t>(&slot - slots_.data())];
      }
    }
    slot.master = {};
    if (const auto found = given.find(kMaster + slot.name); found != given.end()) {
      slot.set_master(found->second);
    }
  }
}

std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options) {
  const std::map<std::string, bool> of_norms = norm_parameters(module);
  const auto vector_decay = [&](const std::string& name) {
    return of_norms.contains(name) ? options.norm_weight_decay : is_bias(name) ? options.bias_weight_decay : 0;
  };
  std::vector<std::pair<double, std::vector<ParameterGroup>>> by_scale;  // in the order of their first parameter
  for (const auto& [name, x] : module.named_parameters()) {
    if (!x.requires_grad()) {
      continue;
    }
    const double scale = options.lr_scale ? options.lr_scale(name) : 1;
    std::vector<ParameterGroup>& groups = entry_of(by_scale, scale);
    if (groups.empty()) {
      groups = {{.parameters = {}, .weight_decay = weight_decay, .lr_scale = scale},
                {.parameters = {}, .weight_decay = 0, .lr_scale = scale}};
    }
    const bool is_gain = x.rank() == 4 && x.numel() == x.size(0);
    const std::string last = name.substr(name.rfind('.') + 1);
    const bool is_token = last == "cls_token" || last == "pos_embed";  // of a ViT
    const bool norm_says_so = of_norms.contains(name) && of_norms.at(name);
    if (options.decay_vectors || norm_says_so || (x.rank() > 1 && !is_gain && !is_token)) {
      groups[0].parameters.emplace_back(name, x);
      continue;
    }
    const double decay = vector_decay(name);
    auto group =
        std::find_if(groups.begin() + 1, groups.end(), [&](const auto& of) { return of.weight_decay == decay; });
    if (group == groups.end()) {
      groups.push_back({.parameters = {}, .weight_decay = decay, .lr_scale = scale});
      group = groups.end() - 1;
    }
    group->parameters.emplace_back(name, x);
  }
  std::vector<ParameterGroup> all;
  for (const auto& [scale, groups] : by_scale) {
    std::ranges::copy_if(groups, std::back_inserter(all), [](const auto& group) { return !group.parameters.empty(); });
  }
  return all;
}

}  // namespace norma::nn
