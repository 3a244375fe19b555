#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"

namespace norma::nn {

class Module;
class ModuleScope;

/// Sees each call of a module on its thread for as long as it lives. Unlike a forward hook it changes nothing: an op
/// still does the work of several modules, and the observer sees the one module in whose name it runs. A second
/// observer on the same thread takes over until it ends.
class ModuleObserver : NotCopied {
 public:
  ModuleObserver() : before_(active_) { active_ = this; }
  virtual ~ModuleObserver() { active_ = before_; }

  /// Called before the forward pass of a module.
  virtual void enter(const Module& module) = 0;
  /// Called after it. `output` includes an activation or a residual that forward_act() has added. It is undefined if
  /// the pass threw; the function must not throw then.
  virtual void leave(const Module& module, const Tensor& input, const Tensor& output) = 0;

 private:
  friend class ModuleScope;
  static inline constinit thread_local ModuleObserver* active_ = nullptr;

  ModuleObserver* before_;
  const Module* innermost_ = nullptr;
};

/// Tells the observer of this thread, if there is one, of a forward pass. Inside a scope of the same module it does
/// nothing.
class ModuleScope : NotCopied {
 public:
  /// Module and input must live longer than the scope.
  ModuleScope(const Module& module, const Tensor& input) : observer_(ModuleObserver::active_) {
    if (observer_ != nullptr) {
      begin(module, input);
    }
  }
  ~ModuleScope() {
    if (observer_ != nullptr) {
      end({});
    }
  }

  /// Ends the scope and returns `output`.
  Tensor leave(Tensor output) {
    if (observer_ != nullptr) {
      end(output);
    }
    return output;
  }

 private:
  void begin(const Module& module, const Tensor& input);
  void end(const Tensor& output);

  ModuleObserver* observer_;
  const Module* module_ = nullptr;
  const Tensor* input_ = nullptr;
  const Module* outer_ = nullptr;
};

}  // namespace norma::nn
