#include "ops/pointwise/pointwise.h"

#include "python/bindings/bindings.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"

namespace norma::python {

namespace {

/// An array of NumPy in the place of an operand; a tensor with a copy of its values.
struct Array {
  Tensor values;
};

using Number = std::variant<int64_t, double, Array>;
using Operand = std::variant<int64_t, double, Tensor, Array>;

/// The operand beside x in the form that Norma's functions take, a double or a tensor.
template <class AnyOperand>
std::variant<double, Tensor> beside(const Tensor& x, const AnyOperand& operand) {
  if constexpr (std::is_same_v<AnyOperand, Operand>) {
    if (const auto* const tensor = std::get_if<Tensor>(&operand)) {
      return *tensor;
    }
  }
  if (const auto* const array = std::get_if<Array>(&operand)) {
    return array->values;
  }
  const auto* const integer = std::get_if<int64_t>(&operand);
  if (integer == nullptr) {
    return std::get<double>(operand);
  }
  constexpr int64_t kExact = int64_t{1} << 53;  // doubles leave out some of the integers behind it
  if (x.dtype() != DType::int64 || (*integer > -kExact && *integer < kExact)) {
    return static_cast<double>(*integer);
  }
  return from_vector<int64_t>({*integer}, {}, {.dtype = DType::int64, .device = x.device()});
}

/// A function of a tensor and a tensor, a number or an array.
template <class F>
auto with_operand(F f) {
  return [f](const Tensor& a, const Operand& b) {
    return std::visit([&](const auto& operand) -> Tensor { return f(a, operand); }, beside(a, b));
  };
}

/// The same with the operands the other way round, for numbers and arrays: 2 - x.
template <class F>
auto of_number(F f) {
  return [f](const Tensor& b, const Number& a) -> Tensor {
    return std::visit([&](const auto& operand) -> Tensor { return f(operand, b); }, beside(b, a));
  };
}

/// a to the power of b.
Tensor power_of(const Tensor& a, const Tensor& b) {
  return pow(a, b);
}
Tensor power_of(double a, const Tensor& b) {
  check_floating("pow", "exponent", b);
  return pow(full({}, a, {.dtype = b.dtype(), .device = b.device()}), b);
}

}  // namespace
}  // namespace norma::python

namespace nanobind::detail {

template <>
struct type_caster<norma::python::Array> {
  NB_TYPE_CASTER(norma::python::Array, const_name("NDArray[typing.Any]"))

  bool from_python(handle source, uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    try {
      if (!norma::python::is_numpy_array(source)) {
        return false;
      }
      value.values = norma::python::copy_of_array(borrow<object>(source));
      return true;
    } catch (const std::exception&) {  // an array of text, say
      return false;
    }
  }
};

}  // namespace nanobind::detail

namespace norma::python {

void add_pointwise(nb::module_& m, nb::class_<Tensor>& tensor) {
  const auto binary = [&](const char* name, const char* dunder, auto f) {
    m.def(name, with_operand(f), nb::arg("input"), nb::arg("other"), Released(), doc(name));
    tensor.def(dunder, with_operand(f), nb::is_operator(), Released());
  };
  binary("add", "__add__", [](const Tensor& a, const auto& b) { return add(a, b); });
  binary("sub", "__sub__", [](const Tensor& a, const auto& b) { return sub(a, b); });
  binary("mul", "__mul__", [](const Tensor& a, const auto& b) { return mul(a, b); });
  binary("div", "__truediv__", [](const Tensor& a, const auto& b) { return div(a, b); });
  binary("pow", "__pow__", [](const Tensor& a, const auto& b) { return pow(a, b); });
  binary("equal", "__eq__", [](const Tensor& a, const auto& b) { return equal(a, b); });
  binary("not_equal", "__ne__", [](const Tensor& a, const auto& b) { return not_equal(a, b); });
  binary("greater", "__gt__", [](const Tensor& a, const auto& b) { return greater(a, b); });
  binary("greater_equal", "__ge__", [](const Tensor& a, const auto& b) { return greater_equal(a, b); });
  binary("less", "__lt__", [](const Tensor& a, const auto& b) { return less(a, b); });
  binary("less_equal", "__le__", [](const Tensor& a, const auto& b) { return less_equal(a, b); });
  tensor.def("__radd__", of_number([](const auto& a, const Tensor& b) { return a + b; }), nb::is_operator(), Released())
      .def("__rsub__", of_number([](const auto& a, const Tensor& b) { return a - b; }), nb::is_operator(), Released())
      .def("__rmul__", of_number([](const auto& a, const Tensor& b) { return a * b; }), nb::is_operator(), Released())
      .def("__rtruediv__", of_number([](const auto& a, const Tensor& b) { return a / b; }), nb::is_operator(),
           Released())
      .def("__rpow__", of_number([](const auto& a, const Tensor& b) { return power_of(a, b); }), nb::is_operator(),
           Released())
      .def("__neg__", &neg, Released())
      .def(
          "__abs__", [](const Tensor& x) { return abs(x); }, Released());
  // NumPy would take a tensor for an array, and the result would have no tape. So it leaves array + x to x.
  tensor.attr("__array_ufunc__") = nb::none();
  m.def("maximum", &maximum, nb::arg("input"), nb::arg("other"), Released(), doc("maximum"));
  m.def("where", &where, nb::arg("condition"), nb::arg("input"), nb::arg("other"), Released(), doc("where"));
  const auto unary = [&](const char* name, Tensor (*f)(const Tensor&)) {
    m.def(name, f, nb::arg("input"), Released(), doc(name));
    tensor.def(name, f, Released(), doc(name));
  };
  unary("neg", &neg);
  unary("exp", &exp);
  unary("log", &log);
  unary("sqrt", &sqrt);
  unary("rsqrt", &rsqrt);
  unary("abs", &abs);
  unary("tanh", &tanh);
  unary("sigmoid", &sigmoid);
  unary("erf", &erf);
  unary("relu", &relu);
  unary("silu", &silu);
  m.def(
      "gelu",
      [](const Tensor& x, const std::string& approximate) {
        return gelu(
            x, value_named<GeluApproximation>("gelu", "approximate", approximate,
                                              {{"none", GeluApproximation::none}, {"tanh", GeluApproximation::tanh}}));
      },
      nb::arg("input"), nb::arg("approximate") = "none", Released(), doc("gelu"));
  m.def("clamp", &clamp, nb::arg("input"), nb::arg("min"), nb::arg("max"), Released(), doc("clamp"));
  // In place.
  const auto in_place = [&](const char* name, auto f) {
    tensor.def(
        name,
        [f](Tensor x, const Operand& b) {
          return std::visit([&](const auto& operand) -> Tensor { return f(x, operand); }, beside(x, b));
        },
        nb::arg("other"), Released());
  };
  in_place("add_", [](Tensor& x, const auto& b) { return add_(x, b); });
  in_place("mul_", [](Tensor& x, const auto& b) { return mul_(x, b); });
  tensor
      .def(
          "copy_",
          [](const Tensor& x, const Tensor& source) {
            check(!source.requires_grad() || !grad_enabled(), "copy_",
                  "source: expected a tensor without a gradient, got one that requires it; detach() it");
            check_in_place("copy_", x);
            check(!will_record({x}), "copy_",
                  "x: expected a tensor that takes part in no graph, got the result of an op on one");
            // In the same memory, elements would be read after they were written.
            copy_into(source.storage() == x.storage() ? copy_of(source) : source, x.detach());
            return x;
          },
          nb::arg("src"), Released(), "Writes the values of `src`, which broadcasts, into this tensor.")
      .def(
          "sub_", [](Tensor x, const Tensor& b) { return sub_(x, b); }, nb::arg("other"), Released())
      .def(
          "div_", [](Tensor x, const Tensor& b) { return div_(x, b); }, nb::arg("other"), Released())
      .def(
          "relu_", [](Tensor x) { return relu_(x); }, Released())
      .def(
          "clamp_", [](Tensor x, double low, double high) { return clamp_(x, low, high); }, nb::arg("min"),
          nb::arg("max"), Released());
}

}  // namespace norma::python
