#include "nn/freeze.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "nn/module.h"
#include "nn/policy_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace norma::nn {

namespace {

constexpr std::string_view kOp = "freeze";
constexpr std::string_view kAllBelow = ".*";

bool names(const FreezePattern& pattern, const std::string& name) {
  return matches_pattern(pattern.pattern, name) || matches_pattern(pattern.pattern + std::string(kAllBelow), name);
}

/// "'layer1.*'", or "p.toml:3:10: 'layer1.*'".
std::string text_of(const FreezePattern& pattern) {
  return fmt::format("{}'{}'", pattern.place.empty() ? "" : pattern.place + ": ", excerpt(pattern.pattern));
}

/// The names of a state dict that are one step below the part of a pattern that the network has: "layer1.0, layer1.1"
/// for "layer1.7.*", and "conv1, bn1, …" for a pattern whose first step is unknown.
std::vector<std::string> parts_near(const std::string& pattern, const NamedTensors& state) {
  std::string known;  // with a dot at its end
  for (size_t dot = pattern.find('.'); dot != std::string::npos; dot = pattern.find('.', dot + 1)) {
    const std::string longer = pattern.substr(0, dot + 1);
    if (std::ranges::none_of(state, [&](const auto& entry) { return entry.first.starts_with(longer); })) {
      break;
    }
    known = longer;
  }
  std::vector<std::string> parts;
  for (const auto& [name, x] : state) {
    if (name.starts_with(known)) {
      const std::string part = name.substr(0, name.find('.', known.size()));
      if (parts.empty() || parts.back() != part) {
        parts.push_back(part);
      }
    }
  }
  return parts;
}

[[noreturn]] void fail_for_nothing(const Module& model, const FreezePattern& pattern) {
  const NamedTensors state = model.state_dict();
  std::vector<std::string> known;
  for (const auto& [path, module] : model.named_modules()) {
    if (!path.empty() && !module->state_dict().empty()) {
      known.push_back(path);
    }
  }
  for (const auto& [name, x] : state) {
    known.push_back(name);
  }
  std::string stem = pattern.pattern;
  const bool all_below = stem.ends_with(kAllBelow);
  stem.resize(stem.size() - (all_below ? kAllBelow.size() : 0));
  fail(kOp,
       "{}: expected the name of a parameter or of a part of the network, got none of them; did you mean '{}{}'? "
       "There are {}",
       text_of(pattern), nearest_name(stem, known), all_below ? kAllBelow : "",
       fmt::join(parts_near(pattern.pattern, state), ", "));
}

}  // namespace

std::vector<FreezePattern> freeze_patterns(std::string_view list, const std::string& place) {
  constexpr std::string_view kBlanks = " \t";
  std::vector<FreezePattern> patterns;
  const std::string_view whole = list;
  while (true) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view one = list.substr(0, comma);
    one.remove_prefix(std::min(one.find_first_not_of(kBlanks), one.size()));
    one = one.substr(0, one.find_last_not_of(kBlanks) + 1);
    check(!one.empty(), kOp, "{}expected patterns of names such as layer1.*,bn1.*, got '{}'",
          place.empty() ? "" : place + ": ", excerpt(whole));
    patterns.push_back({.pattern = std::string(one), .place = place});
    if (comma == list.size()) {
      return patterns;
    }
    list.remove_prefix(comma + 1);
  }
}

void freeze(Module& model, const std::vector<FreezePattern>& patterns) {
  if (patterns.empty()) {
    return;
  }
  std::set<std::string> named;
  for (const FreezePattern& pattern : patterns) {
    bool any = false;
    for (const auto& [name, x] : model.state_dict()) {
      if (names(pattern, name)) {
        any = true;
        named.insert(name);
      }
    }
    if (!any) {
      fail_for_nothing(model, pattern);
    }
  }
  std::set<const TensorImpl*> frozen;  // a parameter may have a second name, in another place
  for (const auto& [name, x] : model.named_parameters(/* remove_duplicate= */ false)) {
    if (named.contains(name)) {
      frozen.insert(x.impl_pointer().get());
    }
  }
  const NamedTensors parameters = model.named_parameters();
  const auto is_named_one = [&](const Tensor& x) { return frozen.contains(x.impl_pointer().get()); };
  const auto is_frozen = [&](const auto& entry) { return !entry.second.requires_grad() || is_named_one(entry.second); };
  if (std::ranges::all_of(parameters, is_frozen)) {
    fail(kOp, "expected patterns that leave a parameter to train, got {}, which name all {}",
         fmt::join(mapped(patterns, text_of), ", "), parameters.size());
  }
  for (auto [name, x] : parameters) {
    if (is_named_one(x)) {
      x.set_requires_grad(false);
      x.set_grad({});
    }
  }
  for (const auto& [path, module] : model.named_modules()) {
    const NamedTensors buffers = module->own_buffers();
    const NamedTensors own = module->own_parameters();
    const bool is_named = std::ranges::any_of(
        buffers, [&, &path = path](const auto& buffer) { return named.contains(join_names(path, buffer.first)); });
    const bool holds_still =
        !own.empty() && std::ranges::none_of(own, [](const auto& entry) { return entry.second.requires_grad(); });
    if (!buffers.empty() && (is_named || holds_still)) {
      module->freeze_statistics();
    }
  }
}

NamedTensors frozen_tensors(const Module& model) {
  NamedTensors frozen;
  for (const auto& [path, module] : model.named_modules()) {
    for (const auto& [name, x] : module->own_parameters()) {
      if (!x.requires_grad()) {
        frozen.emplace_back(join_names(path, name), x);
      }
    }
    if (module->has_frozen_statistics()) {
      for (const auto& [name, x] : module->own_buffers()) {
        frozen.emplace_back(join_names(path, name), x);
      }
    }
  }
  return frozen;
}

}  // namespace norma::nn
