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
  /// False: norms' parameters, biases, layer scales and gains do not decay: all that has rank 0 or 1, or sizes
  /// (n, 1, 1, 1).
  bool decay_vectors = false;
  /// Unless decay_vectors: those of them that norm layers hold. torchvision's --norm-weight-decay.
  double norm_weight_decay = 0;
  /// Unless decay_vectors: those of other layers that are named "bias". torchvision's --bias-weight-decay.
  double bias_weight_decay = 0;
  /// ParameterGroup::lr_scale of each parameter, by its name. Empty: 1.
  std::function<double(const std::string& name)> lr_scale = {};
};

/// All parameters of a module in groups: for each scale of the learning rate those with `weight_decay`, those with
/// none, and those with other numbers. Empty groups are left out.
std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options = {});

}  // namespace norma::nn
