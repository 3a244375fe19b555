#include "nn/module_scope.h"

#include <utility>

namespace norma::nn {

void ModuleScope::begin(const Module& module, const Tensor& input) {
  if (observer_->innermost_ == &module) {
    observer_ = nullptr;
    return;
  }
  module_ = &module;
  input_ = &input;
  outer_ = std::exchange(observer_->innermost_, &module);
  observer_->enter(module);
}

void ModuleScope::end(const Tensor& output) {
  ModuleObserver* const observer = std::exchange(observer_, nullptr);
  observer->innermost_ = outer_;
  observer->leave(*module_, *input_, output);
}

}  // namespace norma::nn
