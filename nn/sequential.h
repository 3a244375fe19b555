#pragma once

#include "nn/checkpoint.h"
#include "nn/module.h"
#include "ops/shape/view.h"

#include <initializer_list>

namespace norma::nn {

/// Returns its input.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  [[nodiscard]] std::string name() const override { return "Identity"; }
};

/// flatten() of the axes [start, end].
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start = 1, int64_t end = -1) : start_(start), end_(end) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_, end_); }
  [[nodiscard]] std::string name() const override { return fmt::format("Flatten({}, {})", start_, end_); }

 private:
  int64_t start_;
  int64_t end_;
};

/// Runs modules one after the other. They are named "0", "1", ….
class Sequential : public Module {
 public:
  Sequential() = default;
  Sequential(std::initializer_list<std::shared_ptr<Module>> modules) {
    for (const auto& module : modules) {
      push_back(module);
    }
  }
  void push_back(std::shared_ptr<Module> module) {
    register_slot(std::to_string(children().size()), std::move(module));
  }
  /// In training each module keeps its input alone, and its forward pass runs again in backward: nn/checkpoint.h. With
  /// the same results it takes less memory and more time.
  void set_grad_checkpointing(bool on = true) { grad_checkpointing_ = on; }
  Tensor forward(const Tensor& x) override {
    const bool checkpoints = grad_checkpointing_ && is_training();
    Tensor y = x;
    for (const auto& child : children()) {
      y = checkpoints ? checkpoint(child.second, y) : (*child.second)(y);
    }
    return y;
  }
  [[nodiscard]] std::string name() const override { return "Sequential"; }

 private:
  bool grad_checkpointing_ = false;
};

}  // namespace norma::nn
