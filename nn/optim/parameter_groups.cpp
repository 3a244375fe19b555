#include "nn/optim/parameter_groups.h"

#include "nn/norm/norm.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace norma::nn {

namespace {

/// The names of the parameters that norm layers hold.
std::set<std::string> norm_parameters(const Module& module) {
  std::set<std::string> names;
  for (const auto& [path, layer] : module.named_modules()) {
    if (dynamic_cast<const Norm*>(layer) == nullptr) {
      continue;
    }
    for (const auto& [name, x] : layer->named_parameters()) {
      names.insert(path.empty() ? name : path + "." + name);
    }
  }
  return names;
}

bool is_bias(std::string_view name) {
  return name == "bias" || name.ends_with(".bias");
}

}  // namespace

std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options) {
  const std::set<std::string> of_norms = norm_parameters(module);
  const auto vector_decay = [&](const std::string& name) {
    return of_norms.contains(name) ? options.norm_weight_decay : is_bias(name) ? options.bias_weight_decay : 0;
  };
  std::vector<std::pair<double, std::vector<ParameterGroup>>> by_scale;  // in the order of their first parameter
  for (const auto& [name, x] : module.named_parameters()) {
    const double scale = options.lr_scale ? options.lr_scale(name) : 1;
    auto known = std::find_if(by_scale.begin(), by_scale.end(), [&](const auto& of) { return of.first == scale; });
    if (known == by_scale.end()) {
      by_scale.push_back({scale,
                          {{.parameters = {}, .weight_decay = weight_decay, .lr_scale = scale},
                           {.parameters = {}, .weight_decay = 0, .lr_scale = scale}}});
      known = by_scale.end() - 1;
    }
    std::vector<ParameterGroup>& groups = known->second;
    const bool is_gain = x.rank() == 4 && x.numel() == x.size(0);
    if (options.decay_vectors || (x.rank() > 1 && !is_gain)) {
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
  for (auto& [scale, groups] : by_scale) {
    for (ParameterGroup& group : groups) {
      if (!group.parameters.empty()) {
        all.push_back(std::move(group));
      }
    }
  }
  return all;
}

}  // namespace norma::nn
