#pragma once

#include "core/tensor.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::nn {

class Module;

/// Names of tensors to freeze.
struct FreezePattern {
  std::string pattern;     ///< for matches_pattern() (nn/policy_file.h)
  std::string place = {};  ///< where it was written, for messages: "p.toml:3:10"; "": on the command line
};

/// The patterns of a list such as "layer1.*, bn1.*". Throws Error for an empty one.
std::vector<FreezePattern> freeze_patterns(std::string_view list, const std::string& place = "");

/// Freezes the tensors of a model's state dict that the patterns name, by their names ("layer1.*", "*.bn1.weight") or
/// by the module that holds them ("layer1"). Frozen parameters require no gradient, so that optimizers leave them out
/// and backward passes end at the last parameter that is trained. The running statistics of a norm are frozen
/// (Module::freeze_statistics()) if a pattern names one of them, or if all parameters of that norm are frozen.
///
/// Throws Error "freeze: …" for a pattern that names nothing, with the nearest name and the names there are, and where
/// no parameter would be left to train. Nothing has changed then.
void freeze(Module& model, const std::vector<FreezePattern>& patterns);

/// The frozen tensors of a state dict, by name: parameters that require no gradient, and frozen statistics. They share
/// the model's memory.
std::vector<std::pair<std::string, Tensor>> frozen_tensors(const Module& model);

}  // namespace norma::nn
