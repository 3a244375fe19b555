#pragma once

#include "python/bindings/bindings.h"

#include <nanobind/trampoline.h>

namespace norma::python {

/// A module whose class is written in Python.
class PythonModule : public nn::Module {
 public:
  NB_TRAMPOLINE(nn::Module, 2);

  Tensor forward(const Tensor& x) override { NB_OVERRIDE_PURE(forward, x); }

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
