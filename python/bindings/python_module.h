#pragma once

#include "python/bindings/bindings.h"

#include <nanobind/trampoline.h>

namespace norma::python {

/// A module whose class is written in Python.
class PythonModule : public nn::Module {
 public:
  NB_TRAMPOLINE(nn::Module, 2);

  Tensor forward(const Tensor& x) override {
    const nb::gil_scoped_acquire gil;
    const nb::object self = nb::borrow(nb_trampoline.base());
    const nb::object own = self.type().attr("forward");
    if (own.is(nb::type<nn::Module>().attr("forward"))) {
      fail_without_forward();
    }
    const nb::object y = own(self, x);
    check(nb::isinstance<Tensor>(y), class_name(), "forward: expected a Tensor, got {}",
          nb::cast<std::string>(y.type().attr("__name__")));
    return nb::cast<Tensor>(y);
  }

  /// What forward() of the base class does, which computes nothing.
  [[noreturn]] void fail_without_forward() const {
    fail(class_name(), "expected a method forward(self, x), got none, or one that calls that of Module");
  }

  /// The class, as "Derf()".
  [[nodiscard]] std::string name() const override { return class_name() + "()"; }

 private:
  [[nodiscard]] std::string class_name() const {
    const nb::gil_scoped_acquire gil;
    return nb::cast<std::string>(nb_trampoline.base().type().attr("__name__"));
  }
};

/// What Module gives to derived classes only.
class Publicist : public nn::Module {
 public:
  using Module::register_buffer;
  using Module::register_parameter;
  using Module::register_slot;
};

}  // namespace norma::python
