#include "nn/optim/parameter_groups.h"

#include <algorithm>
#include <utility>

namespace norma::nn {

std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options) {
  std::vector<double> scales;  // in the order of their first parameter
  std::vector<ParameterGroup> decaying;
  std::vector<ParameterGroup> others;
  for (const auto& [name, x] : module.named_parameters()) {
    const double scale = options.lr_scale ? options.lr_scale(name) : 1;
    const auto known = std::find(scales.begin(), scales.end(), scale);
    const auto index = static_cast<size_t>(known - scales.begin());
    if (known == scales.end()) {
      scales.push_back(scale);
      decaying.push_back({.parameters = {}, .weight_decay = weight_decay, .lr_scale = scale});
      others.push_back({.parameters = {}, .weight_decay = 0, .lr_scale = scale});
    }
    const bool is_gain = x.rank() == 4 && x.numel() == x.size(0);
    const bool decays = options.decay_vectors || (x.rank() > 1 && !is_gain);
    (decays ? decaying : others)[index].parameters.emplace_back(name, x);
  }
  std::vector<ParameterGroup> groups;
  for (size_t i = 0; i < scales.size(); ++i) {
    for (ParameterGroup* group : {&decaying[i], &others[i]}) {
      if (!group->parameters.empty()) {
        groups.push_back(std::move(*group));
      }
    }
  }
  return groups;
}

}  // namespace norma::nn
