#pragma once

#include "nn/module.h"

#include <utility>
#include <vector>

namespace norma::nn {

/// Keeps the mode of every module of a model, training or evaluation, and restores it at the end of the scope.
class Modes {
 public:
  explicit Modes(Module& model) {
    for (const auto& [path, module] : model.named_modules()) {
      modes_.emplace_back(module, module->is_training());
    }
  }
  ~Modes() {
    for (const auto& [module, training] : modes_) {  // parents before children, whose own mode is set later
      module->train(training);
    }
  }
  Modes(const Modes&) = delete;
  Modes& operator=(const Modes&) = delete;

  /// Restores nothing: the model keeps the modes that it has.
  void forget() { modes_.clear(); }

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

}  // namespace norma::nn
