#pragma once

#include "base/not_copied.h"
#include "nn/module.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace norma::nn {

/// Registers hooks, and removes them at the end of the scope. The modules must outlive it.
class Hooks : NotCopied {
 public:
  ~Hooks() {
    for (const auto& [module, number] : hooks_) {
      module->remove_forward_hook(number);
    }
  }

  void add(Module& module, Module::ForwardHook hook) {
    hooks_.emplace_back(&module, module.register_forward_hook(std::move(hook)));
  }

 private:
  std::vector<std::pair<Module*, int64_t>> hooks_;
};

}  // namespace norma::nn
