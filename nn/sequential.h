#pragma once

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
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& child : children()) {
      y = (*child.second)(y);
    }
    return y;
  }
  [[nodiscard]] std::string name() const override { return "Sequential"; }
};

}  // namespace norma::nn
