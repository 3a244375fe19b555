#pragma once

// What the files of the module share. Each binds a part of Norma: the names, arguments and defaults are those of the
// headers, whose comments are the docstrings. Options structs become keyword arguments.

#include "base/error.h"
#include "core/tensor.h"
#include "nn/module.h"
#include "ops/conv/conv.h"
#include "ops/pointwise/activation.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nb = nanobind;

namespace norma::python {

/// The comment above a function or class in the headers.
const char* doc(std::string_view name);

/// Lets other threads of Python run while Norma computes.
using Released = nb::call_guard<nb::gil_scoped_release>;

/// A text for Python. Bytes that are not UTF-8, as the name of a file may have, become U+FFFD.
inline nb::object decoded(std::string_view text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

/// An argument that may be None.
using Optional = std::optional<Tensor>;
inline Tensor tensor_or_none(const Optional& x) {
  return x.value_or(Tensor());
}
/// None for an undefined tensor.
inline Optional none_if_undefined(const Tensor& x) {
  return x.defined() ? Optional(x) : std::nullopt;
}

/// Tensors by name, in order.
using TensorDict = nb::typed<nb::dict, nb::str, Tensor>;
inline TensorDict dict_of(const nn::NamedTensors& tensors) {
  nb::dict result;
  for (const auto& [name, x] : tensors) {
    result[name.c_str()] = nb::cast(x);
  }
  return nb::cast<TensorDict>(result);
}

/// A number for height and width, or one for each.
using PairArgument = std::variant<int64_t, std::pair<int64_t, int64_t>>;
inline Pair pair_of(const PairArgument& x) {
  if (const auto* const both = std::get_if<int64_t>(&x)) {
    return *both;
  }
  const auto& [h, w] = std::get<std::pair<int64_t, int64_t>>(x);
  return {h, w};
}

/// The value with this name; Error "op: argument: expected one of …, got …".
template <class T>
T value_named(std::string_view op, std::string_view argument, std::string_view name,
              std::initializer_list<std::pair<std::string_view, T>> values) {
  std::string names;
  for (const auto& [text, value] : values) {
    if (text == name) {
      return value;
    }
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", text);
  }
  fail(op, "{}: expected one of {}, got '{}'", argument, names, name);
}

MemoryFormat memory_format_named(std::string_view op, std::string_view name);

/// The steps that may follow a norm or a convolution: activation(y + residual).
ActOptions then(const std::string& activation, const Optional& residual);

/// A tensor on the memory of an object of NumPy, PyTorch, JAX, … that has __dlpack__.
Tensor from_dlpack_object(const nb::object& x);

bool is_numpy_array(const nb::handle& x);
/// A tensor with a copy of the values of such an object, of arrays of NumPy also read-only and reversed ones.
Tensor copy_of_array(const nb::object& x, std::optional<DType> dtype = {});

/// While one lives, a command runs on this thread: what a norm of Python raises is a reason in one line.
class InCommand {
 public:
  InCommand() { lives() = true; }
  ~InCommand() { lives() = false; }
  InCommand(const InCommand&) = delete;
  InCommand& operator=(const InCommand&) = delete;

  static bool& lives() {
    static thread_local bool value = false;
    return value;
  }
};

// Each of these adds its part to the module.
void add_errors(nb::module_& m);
void add_tensor(nb::module_& m);
void add_dlpack(nb::module_& m, nb::class_<Tensor>& tensor);
void add_factories(nb::module_& m);
void add_tape(nb::module_& m);
void add_pointwise(nb::module_& m, nb::class_<Tensor>& tensor);
void add_shapes(nb::module_& m, nb::class_<Tensor>& tensor);
void add_layers_ops(nb::module_& m);
void add_norm_ops(nb::module_& m);
void add_modules(nb::module_& m);
void add_layers(nb::module_& m);
void add_optimizers(nb::module_& m);
void add_norm_registry(nb::module_& m);
void add_lab(nb::module_& m);
void add_conformance(nb::module_& m);

}  // namespace norma::python

namespace nanobind::detail {

/// Sizes, strides and axes: a sequence of integers, or one integer.
template <>
struct type_caster<norma::Sizes> {
  NB_TYPE_CASTER(norma::Sizes, io_name("int | Sequence[int]", "tuple[int, ...]"))

  bool from_python(handle source, uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    try {
      value = {};
      if (PyIndex_Check(source.ptr()) != 0 && PySequence_Check(source.ptr()) == 0) {
        value.push_back(nb_cast(source));
        return true;
      }
      if (PySequence_Check(source.ptr()) == 0 || isinstance<str>(source)) {
        return false;
      }
      for (const handle item : borrow<object>(source)) {
        value.push_back(nb_cast(item));
      }
      return true;
    } catch (const std::exception&) {
      PyErr_Clear();
      return false;
    }
  }
  static handle from_cpp(const norma::Sizes& sizes, rv_policy /*policy*/, cleanup_list* /*cleanup*/) noexcept {
    PyObject* const result = PyTuple_New(static_cast<Py_ssize_t>(sizes.size()));
    for (int64_t i = 0; result != nullptr && i < sizes.size(); ++i) {
      PyTuple_SetItem(result, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(sizes[i]));
    }
    return result;
  }

 private:
  static int64_t nb_cast(handle x) { return nanobind::cast<int64_t>(x); }
};

}  // namespace nanobind::detail
