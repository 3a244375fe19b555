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
  double lr_scale = 1;  ///< factor of the learning rate
};

struct ParameterGroupsOptions {
  /// False: parameters of norms, biases, layer scales and gains (all of rank 0 or 1, or of sizes (n, 1, 1, 1)) do not
  /// decay.
  bool decay_vectors = false;
  /// Unless decay_vectors: the decay of such parameters in norm layers, torchvision's --norm-weight-decay.
  double norm_weight_decay = 0;
  /// Unless decay_vectors: the decay of others of them named "bias", torchvision's --bias-weight-decay.
  double bias_weight_decay = 0;
  /// ParameterGroup::lr_scale of each parameter, by its name. Empty: 1 for all.
  std::function<double(const std::string& name)> lr_scale = {};
};

/// All parameters of a module in groups: for each scale of the learning rate, those with `weight_decay`, those with
/// none, and those with other numbers. Empty groups are left out.
std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options = {});

}  // namespace norma::nn
