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
    const auto class_name = nb::cast<std::string>(self.type().attr("__name__"));
    const nb::object own = self.type().attr("forward");
    check(!own.is(nb::type<nn::Module>().attr("forward")), class_name, "expected a method forward(self, x), got none");
    const nb::object y = own(self, x);
    check(nb::isinstance<Tensor>(y), class_name, "forward: expected a Tensor, got {}",
          nb::cast<std::string>(y.type().attr("__name__")));
    return nb::cast<Tensor>(y);
  }

  /// The class, as "Derf()".
  [[nodiscard]] std::string name() const override {
    const nb::gil_scoped_acquire gil;
    return nb::cast<std::string>(nb_trampoline.base().type().attr("__name__")) + "()";
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
