#include "nn/optim/parameter_groups.h"

#include <utility>

namespace norma::nn {

std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options) {
  ParameterGroup decaying{.parameters = {}, .weight_decay = weight_decay};
  ParameterGroup others{.parameters = {}, .weight_decay = 0};
  for (const auto& [name, x] : module.named_parameters()) {
    const bool is_gain = x.rank() == 4 && x.numel() == x.size(0);
    const bool decays = options.decay_vectors || (x.rank() > 1 && !is_gain);
    (decays ? decaying : others).parameters.emplace_back(name, x);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&decaying, &others}) {
    if (!group->parameters.empty()) {
      groups.push_back(std::move(*group));
    }
  }
  return groups;
}

}  // namespace norma::nn
