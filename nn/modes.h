#pragma once

#include "nn/module.h"

#include <utility>
#include <vector>

namespace norma::nn {

/// The mode of every module of a model, training or evaluation, restored at the end of the scope.
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

  /// Leaves the model in the modes it has then.
  void forget() { modes_.clear(); }

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

}  // namespace norma::nn
