#include "nn/module.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/allocator.h"
#include "core/anomaly.h"
#include "core/copy.h"
#include "core/tape.h"
#include "nn/module_scope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace norma::nn {

std::string join_names(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

namespace {

constexpr std::string_view kCounter = "num_batches_tracked";

// Calls f(prefix, module) for a module and all below it, parents first.
template <class M, class F>
void walk(M& module, const std::string& prefix, F&& f) {
  f(prefix, module);
  for (const auto& [name, child] : module.children()) {
    walk<M>(*child, join_names(prefix, name), f);
  }
}

// True iff `one` is `tree` or stands below it.
bool holds(const Module& tree, const Module& one) {
  bool found = false;
  walk(tree, "", [&](const std::string&, const Module& module) { found = found || &module == &one; });
  return found;
}

// Replaces x, and its gradient, by convert() of each.
void convert_in_place(Tensor x, const std::function<Tensor(const Tensor&)>& convert) {
  const NoGradGuard no_grad;
  const Tensor gradient = x.grad();
  const Tensor converted = convert(x.detach());
  if (gradient.defined()) {
    x.set_grad({});
  }
  replace_data(x, converted);
  if (gradient.defined()) {
    x.set_grad(convert(gradient.detach()));
  }
}

// The sizes without the trailing 1s of a 1x1 convolution's weight: (O, I, 1, 1) → (O, I).
Sizes matrix_sizes(const Sizes& sizes) {
  return sizes.size() == 4 && sizes[2] == 1 && sizes[3] == 1 ? Sizes{sizes[0], sizes[1]} : sizes;
}

// True iff a tensor of sizes `given` can be loaded into one of sizes `expected`.
bool loadable(const Sizes& given, const Sizes& expected) {
  return given == expected || matrix_sizes(given) == matrix_sizes(expected);
}

void copy_values(const Tensor& from, const Tensor& to) {
  if (from.sizes() == to.sizes()) {
    copy_into(from, to);
  } else {  // (O, I) and (O, I, 1, 1) have the same row-major order
    const Tensor rows = copy_of(from, MemoryFormat::contiguous);
    copy_into(alias(rows, to.sizes(), contiguous_strides(to.sizes()), rows.offset()), to);
  }
}

std::string list(std::string_view title, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("{}: {}", title, excerpt_list(names));
}

void append_tree(const Module& module, const std::string& label, int depth, std::string& text) {
  text += fmt::format("{}{}{}", std::string(static_cast<size_t>(2 * depth), ' '), label, module.name());
  if (!module.children().empty()) {
    text += " {\n";
    for (const auto& [name, child] : module.children()) {
      append_tree(*child, name + ": ", depth + 1, text);
    }
    text += std::string(static_cast<size_t>(2 * depth), ' ') + "}";
  }
  text += "\n";
}

}  // namespace

bool is_counter(const std::string& name) {
  return name == kCounter || name.ends_with("." + std::string(kCounter));
}

Tensor Module::operator()(const Tensor& x) {
  ModuleScope scope(*this, x);
  Tensor y;
  try {
    y = scope.leave(forward(x));
  } catch (...) {
    if (norm_in_errors_.empty()) {
      throw;
    }
    rethrow_named(norm_in_errors_);
  }
  run_forward_hooks(x, y);
  return y;
}

void Module::rethrow_named(const std::string& norm) {
  constexpr size_t kLongest = 400;
  std::string text = "it threw something that is no std::exception";
  try {
    throw;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const NotFinite&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    text = excerpt(error.what(), kLongest);
  } catch (...) {
  }
  fail(fmt::format("norm '{}'", norm), "{}", text);
}

void Module::run_forward_hooks(const Tensor& input, const Tensor& output) const {
  if (hooks_.empty()) {
    return;
  }
  const auto hooks = hooks_;  // a hook may take itself off
  for (const auto& [number, hook] : hooks) {
    hook(*this, input, output);
  }
}

int64_t Module::register_forward_hook(ForwardHook hook) {
  hooks_.emplace_back(next_hook_, std::move(hook));
  return next_hook_++;
}

void Module::remove_forward_hook(int64_t number) {
  const size_t removed = std::erase_if(hooks_, [&](const auto& hook) { return hook.first == number; });
  check(removed == 1, name(), "remove_forward_hook: expected the number of a hook, got {}", number);
}

void Module::check_name(const std::string& name) const {
  const auto taken = [&](const auto& entries) {
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
  };
  check(!name.empty() && name.find('.') == std::string::npos, "register",
        "name: expected letters without dots, got '{}'", name);
  check(!taken(parameters_) && !taken(buffers_) && !taken(children_), "register", "name: '{}' is already taken", name);
}

Tensor Module::register_parameter(const std::string& name, const Tensor& x) {
  check_name(name);
  if (!x.defined()) {
    return x;
  }
  Tensor parameter = x;
  parameter.set_requires_grad();
  parameters_.emplace_back(name, parameter);
  return parameter;
}

void Module::drop_parameter(const std::string& name) {
  std::erase_if(parameters_, [&](const auto& entry) { return entry.first == name; });
}

Tensor Module::register_buffer(const std::string& name, const Tensor& x) {
  check_name(name);
  if (x.defined()) {
    buffers_.emplace_back(name, x);
  }
  return x;
}

void Module::add_child(const std::string& name, std::shared_ptr<Module> module, std::optional<SlotOptions> slot) {
  check_name(name);
  check(module != nullptr, "register_module", "module: expected a module under the name '{}', got none", name);
  check(!holds(*module, *this), "register_module",
        "module: expected one that does not hold its parent, got one that does under the name '{}'", name);
  children_.emplace_back(name, std::move(module));
  slots_.push_back(slot);
}

std::vector<ReplaceableModule> Module::replaceable_modules() {
  std::vector<ReplaceableModule> result;
  for (const auto& [path, module] : named_modules()) {
    for (size_t i = 0; i < module->children_.size(); ++i) {
      if (module->slots_[i]) {
        const auto& [name, child] = module->children_[i];
        result.push_back({join_names(path, name), child.get(), *module->slots_[i]});
      }
    }
  }
  return result;
}

std::shared_ptr<Module> Module::replace_module(const std::string& path, std::shared_ptr<Module> module) {
  check(module != nullptr, "replace_module", "module: expected a module for '{}', got none", path);
  const size_t dot = path.rfind('.');
  const std::string parent_path = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
  std::vector<std::string> known;
  for (const auto& [own_path, own] : named_modules()) {
    if (own_path == parent_path) {
      for (size_t i = 0; i < own->children_.size(); ++i) {
        if (own->children_[i].first == name) {
          check(own->slots_[i].has_value(), "replace_module", "path: the module '{}' is held by its parent", path);
          check(!holds(*module, *own), "replace_module",
                "module: expected one that does not hold its parent, got one that does for '{}'", path);
          module->take_mode(*own->children_[i].second);
          std::swap(own->children_[i].second, module);
          return module;
        }
      }
    }
    if (!own_path.empty()) {
      known.push_back(own_path);
    }
  }
  fail("replace_module", "{}", unknown_name("module", path, known));
}

NamedTensors Module::named_parameters(bool remove_duplicate) const {
  return named(&Module::parameters_, remove_duplicate);
}

NamedTensors Module::named_buffers(bool remove_duplicate) const {
  return named(&Module::buffers_, remove_duplicate);
}

NamedTensors Module::named(NamedTensors Module::*own, bool remove_duplicate) const {
  NamedTensors result;
  std::unordered_set<const TensorImpl*> seen;
  walk(*this, "", [&](const std::string& prefix, const Module& module) {
    for (const auto& [name, x] : module.*own) {
      if (seen.insert(x.impl_pointer().get()).second || !remove_duplicate) {
        result.emplace_back(join_names(prefix, name), x);
      }
    }
  });
  return result;
}

Tensors Module::parameters() const {
  return mapped(named_parameters(), [](const auto& parameter) { return parameter.second; });
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> result;
  walk(*this, "", [&](const std::string& prefix, Module& module) { result.emplace_back(prefix, &module); });
  return result;
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules() const {
  std::vector<std::pair<std::string, const Module*>> result;
  walk(*this, "", [&](const std::string& prefix, const Module& module) { result.emplace_back(prefix, &module); });
  return result;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Tensor& x : parameters()) {
    count += x.numel();
  }
  return count;
}

void Module::train(bool on) {
  walk(*this, "", [&](const std::string&, Module& module) { module.training_ = on; });
}

void Module::take_mode(const Module& other) {
  train(other.training_);  // is_training() is false where statistics are frozen
  has_frozen_statistics_ = has_frozen_statistics_ || other.has_frozen_statistics_;
}

void Module::convert_tensors(const std::function<bool(const Tensor&)>& wanted,
                             const std::function<Tensor(const Tensor&)>& convert, bool buffers) {
  walk(*this, "", [&](const std::string&, Module& module) {
    for (const NamedTensors* tensors : {&module.parameters_, &module.buffers_}) {
      if (tensors == &module.buffers_ && !buffers) {
        continue;
      }
      for (const auto& [name, x] : *tensors) {
        if (wanted(x)) {
          convert_in_place(x, convert);
        }
      }
    }
  });
}

void Module::convert_floating(std::string_view op, DType dtype, bool buffers) {
  check(is_floating(dtype), op, "dtype: expected a floating dtype, got {}", to_string(dtype));
  convert_tensors([&](const Tensor& x) { return is_floating(x.dtype()) && x.dtype() != dtype; },
                  [&](const Tensor& x) { return copy_of(x, MemoryFormat::preserve, dtype); }, buffers);
}

void Module::to(MemoryFormat format) {
  convert_tensors([&](const Tensor& x) { return x.rank() == 4 && !(x.strides() == strides_for(x.sizes(), format)); },
                  [&](const Tensor& x) { return copy_of(x, strides_for(x.sizes(), format), x.dtype()); });
}

void Module::to(Device device) {
  check_available("to", device);
  convert_tensors([&](const Tensor& x) { return x.device() != device; },
                  [&](const Tensor& x) { return to_device(x, device); });
}

Device Module::device() const {
  for (const NamedTensors& tensors : {named_parameters(), named_buffers()}) {
    if (!tensors.empty()) {
      return tensors.front().second.device();
    }
  }
  return default_device();
}

void Module::zero_grad() {
  for (Tensor x : parameters()) {
    x.set_grad({});
  }
}

NamedTensors Module::state_dict() const {
  NamedTensors result;
  walk(*this, "", [&](const std::string& prefix, const Module& module) {
    for (const NamedTensors* tensors : {&module.parameters_, &module.buffers_}) {
      for (const auto& [name, x] : *tensors) {
        result.emplace_back(join_names(prefix, name), x.detach());
      }
    }
  });
  return result;
}

LoadReport Module::load_state_dict(const NamedTensors& dict, const LoadOptions& options) {
  const NamedTensors own = state_dict();
  std::unordered_map<std::string, Tensor> given;
  std::vector<std::string> repeated;
  for (const auto& [name, x] : dict) {
    check_defined("load_state_dict", name, x);
    if (!given.emplace(name, x).second) {
      repeated.push_back(name);
    }
  }

  LoadReport report;
  std::vector<std::string> unlike;
  std::unordered_set<std::string> known;
  for (const auto& [name, x] : own) {
    known.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) {
      if (!is_counter(name)) {
        report.missing.push_back(name);
      }
    } else if (!loadable(found->second.sizes(), x.sizes())) {
      unlike.push_back(
          fmt::format("{}: expected sizes {}, got {}", name, to_string(x.sizes()), to_string(found->second.sizes())));
    } else if (is_floating(found->second.dtype()) != is_floating(x.dtype())) {
      // Integers have as many bytes as some float, but cannot be weights.
      unlike.push_back(fmt::format("{}: expected {} dtype, got {}", name,
                                   is_floating(x.dtype()) ? "a floating" : "an integer",
                                   to_string(found->second.dtype())));
    }
  }
  for (const auto& [name, x] : dict) {
    if (!known.contains(name) && !is_counter(name)) {
      report.unexpected.push_back(name);
    }
  }

  std::vector<std::string> problems;
  if (!unlike.empty()) {
    problems.push_back(excerpt_list(unlike, "; ", /* limit= */ 200));
  }
  const auto put_in_front = [&](const std::string& text) {
    if (!text.empty()) {
      problems.insert(problems.begin(), text);
    }
  };
  put_in_front(list("repeated", repeated));
  if (options.strict) {
    put_in_front(list("unexpected", report.unexpected));
    put_in_front(list("missing", report.missing));
  }
  check(problems.empty(), "load_state_dict", "{}", fmt::join(problems, "; "));

  const NoGradGuard no_grad;
  for (const auto& [name, x] : own) {
    if (const auto found = given.find(name); found != given.end()) {
      copy_values(found->second, x);
    }
  }
  return report;
}

std::string to_string(const Module& module) {
  std::string text;
  append_tree(module, "", 0, text);
  return text;
}

void ModuleScope::begin(const Module& module, const Tensor& input) {
  if (observer_->innermost_ == &module) {
    observer_ = nullptr;
    return;
  }
  module_ = &module;
  input_ = &input;
  outer_ = std::exchange(observer_->innermost_, &module);
  observer_->enter(module);
}

void ModuleScope::end(const Tensor& output) {
  ModuleObserver* const observer = std::exchange(observer_, nullptr);
  observer->innermost_ = outer_;
  observer->leave(*module_, *input_, output);
}

}  // namespace norma::nn
