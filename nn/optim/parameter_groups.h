#pragma once

#include "nn/module.h"

#include <functional>
#include <string>
#include <vector>

namespace norma::nn {

/// Parameters that share their settings.
struct ParameterGroup {
  NamedTensors parameters;
  double weight_decay = 0;
  double lr_scale = 1;  ///< the learning rate is multiplied by this
};

struct ParameterGroupsOptions {
  /// Norms' parameters, biases, layer scales and gains do not decay: all that has rank 0 or 1, or sizes (n, 1, 1, 1).
  bool decay_vectors = false;
  /// ParameterGroup::lr_scale of each parameter, by its name. Empty: 1.
  std::function<double(const std::string& name)> lr_scale = {};
};

/// All parameters of a module in two groups: those that decay and those that do not, for each scale of the learning
/// rate. Empty groups are left out.
std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options = {});

}  // namespace norma::nn
