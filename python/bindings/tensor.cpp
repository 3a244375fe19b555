#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"
#include "python/bindings/bindings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace norma::python {

namespace {

nb::object item(const Tensor& x) {
  check(x.numel() == 1, "item", "expected a tensor with one element, got sizes {}", to_string(x.sizes()));
  if (x.dtype() == DType::boolean) {
    return nb::cast(x.item<bool>());
  }
  return is_floating(x.dtype()) ? nb::cast(x.to_vector<double>()[0]) : nb::cast(x.to_vector<int64_t>()[0]);
}

template <class T>
nb::object nested(const std::vector<T>& values, const Sizes& sizes, int64_t axis, size_t& next) {
  if (axis == sizes.size()) {
    return nb::cast(static_cast<T>(values[next++]));
  }
  nb::list result;
  for (int64_t i = 0; i < sizes[axis]; ++i) {
    result.append(nested(values, sizes, axis + 1, next));
  }
  return result;
}

nb::object to_list(const Tensor& x) {
  size_t next = 0;
  if (x.dtype() == DType::boolean) {
    return nested(x.to_vector<bool>(), x.sizes(), 0, next);
  }
  return is_floating(x.dtype()) ? nested(x.to_vector<double>(), x.sizes(), 0, next)
                                : nested(x.to_vector<int64_t>(), x.sizes(), 0, next);
}

bool truth(const Tensor& x) {
  check(x.numel() == 1, "bool", "expected a tensor with one element, got sizes {}: say what you mean, as by sum()",
        to_string(x.sizes()));
  return x.to_vector<double>()[0] != 0;
}

std::string text_of(const Tensor& x) {
  return to_string(x.detach()) + (x.is_leaf() ? (x.requires_grad() ? ", requires_grad" : "") : ", recorded");
}

// What Python's modules copy and pickle ask of a tensor.

/// A copy in Python also has the attributes that were assigned to the tensor.
nb::object with_attributes(Tensor x, bool requires_grad, const nb::handle& attributes) {
  x.set_requires_grad(requires_grad);
  nb::object result = nb::cast(x);
  result.attr("__dict__").attr("update")(attributes);
  return result;
}

nb::object shallow_copy(const nb::handle& self) {
  const auto& x = nb::cast<const Tensor&>(self);
  return with_attributes(x.detach(), x.requires_grad(), self.attr("__dict__"));
}

nb::object deep_copy(const nb::handle& self, const nb::object& memo) {
  const auto& x = nb::cast<const Tensor&>(self);
  check(x.is_leaf(), "deepcopy",
        "x: expected a leaf of the tape, got the result of an op on it; detach() or clone() it");
  const nb::object copier = nb::module_::import_("copy").attr("deepcopy");
  nb::object result = with_attributes(copy_of(x.detach()), x.requires_grad(), copier(self.attr("__dict__"), memo));
  if (x.grad().defined()) {
    nb::cast<Tensor&>(result).set_grad(copy_of(x.grad().detach()));
  }
  return result;
}

nb::tuple pickled(const nb::handle& self) {
  const auto& x = nb::cast<const Tensor&>(self);
  const Tensor dense = to_device(copy_of(x.detach()), kCpu);
  const nb::bytes bytes(dense.device_pointer(), static_cast<size_t>(dense.numel()) * size_of(dense.dtype()));
  const nb::object rebuild = nb::module_::import_("norma._copies").attr("rebuild_tensor");
  const nb::tuple arguments = nb::make_tuple(bytes, std::string(to_string(x.dtype())), nb::cast(x.sizes()),
                                             nb::cast(dense.strides()), to_string(x.device()), x.requires_grad());
  const nb::object attributes = self.attr("__dict__");
  return nb::len(attributes) == 0 ? nb::make_tuple(rebuild, arguments) : nb::make_tuple(rebuild, arguments, attributes);
}

Tensor unpickled(const nb::bytes& bytes, const std::string& dtype, const Sizes& sizes, const Strides& strides,
                 const std::string& device, bool requires_grad) {
  Tensor x = empty_strided(sizes, strides, {.dtype = dtype_from_string(dtype), .device = kCpu});
  const size_t expected = static_cast<size_t>(x.numel()) * size_of(x.dtype());
  check(bytes.size() == expected, "unpickle", "bytes: expected {} for {} of sizes {}, got {}", expected, dtype,
        to_string(sizes), bytes.size());
  if (expected > 0) {
    std::memcpy(x.device_pointer(), bytes.data(), expected);
  }
  return to_device(x, device_from_string(device)).set_requires_grad(requires_grad);
}

/// x[start:end:step] along one axis; a view.
Tensor sliced(const Tensor& x, int64_t axis, const nb::slice& range) {
  Py_ssize_t start = 0;
  Py_ssize_t stop = 0;
  Py_ssize_t step = 1;
  if (PySlice_Unpack(range.ptr(), &start, &stop, &step) < 0) {
    throw nb::python_error();
  }
  check(step >= 1, "getitem", "expected a step of at least 1 along axis {}, got {}", axis, step);
  PySlice_AdjustIndices(x.size(axis), &start, &stop, step);
  return slice(x, axis, start, std::max(start, stop), step);
}

bool is_ellipsis(const nb::handle& x) {
  return x.ptr() == Py_Ellipsis;
}

/// Integers, slices, None, … and one tensor of row numbers, as in NumPy. All but the last give views.
Tensor get_item(const Tensor& x, const nb::object& key) {
  std::vector<nb::object> parts;
  if (nb::isinstance<nb::tuple>(key)) {
    for (const nb::handle part : key) {
      parts.push_back(nb::borrow(part));
    }
  } else {
    parts.push_back(key);
  }
  int64_t taken = 0;
  int64_t ellipses = 0;
  int64_t tensors = 0;
  for (const nb::object& part : parts) {
    taken += part.is_none() || is_ellipsis(part) ? 0 : 1;
    ellipses += is_ellipsis(part) ? 1 : 0;
    tensors += nb::isinstance<Tensor>(part) ? 1 : 0;
  }
  check(taken <= x.rank(), "getitem", "expected at most {} indices, got {}", x.rank(), taken);
  check(ellipses <= 1, "getitem", "expected at most one …, got {}", ellipses);
  check(tensors <= 1, "getitem", "expected at most one tensor of row numbers, got {}", tensors);
  Tensor y = x;
  int64_t axis = 0;
  for (const nb::object& part : parts) {
    if (part.is_none()) {
      y = unsqueeze(y, axis++);
    } else if (is_ellipsis(part)) {
      axis += x.rank() - taken;
    } else if (nb::isinstance<nb::slice>(part)) {
      y = sliced(y, axis, nb::cast<nb::slice>(part));
      ++axis;
    } else if (nb::isinstance<Tensor>(part)) {
      y = index_select(y, axis++, nb::cast<Tensor>(part));
    } else {
      check(PyIndex_Check(part.ptr()) != 0 && PyBool_Check(part.ptr()) == 0, "getitem",
            "expected integers, slices, None, … or a tensor, got {}",
            nb::cast<std::string>(part.type().attr("__name__")));
      const Py_ssize_t index = PyNumber_AsSsize_t(part.ptr(), PyExc_IndexError);
      if (index == -1 && PyErr_Occurred() != nullptr) {
        throw nb::python_error();
      }
      if (index < -y.size(axis) || index >= y.size(axis)) {  // ends a loop of Python over a tensor
        throw nb::index_error(fmt::format("getitem: expected an index in [{}, {}) along axis {}, got {}", -y.size(axis),
                                          y.size(axis), axis, index)
                                  .c_str());
      }
      y = select(y, axis, index);
    }
  }
  return y;
}

void add_copies(nb::module_& m, nb::class_<Tensor>& tensor) {
  tensor.def("__copy__", &shallow_copy, nb::sig("def __copy__(self) -> Tensor"), "A new leaf on the same memory.")
      .def("__deepcopy__", &deep_copy, nb::arg("memo"),
           nb::sig("def __deepcopy__(self, memo: dict[int, typing.Any]) -> Tensor"),
           "A tensor with memory of its own, with the gradient. Throws Error for the result of an op on the tape.")
      .def("__reduce__", &pickled, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
  m.def("_rebuild_tensor", &unpickled, nb::arg("data"), nb::arg("dtype"), nb::arg("sizes"), nb::arg("strides"),
        nb::arg("device"), nb::arg("requires_grad"), "A tensor of what pickle has kept of it.");
}

void add_indexing(nb::class_<Tensor>& tensor) {
  tensor.def(
      "__iter__",
      [](const Tensor& x) {
        check(x.rank() > 0, "iter", "expected a tensor of rank 1 or more, got one of rank 0");
        nb::list rows;
        for (int64_t i = 0; i < x.size(0); ++i) {
          rows.append(select(x, 0, i));
        }
        return nb::iter(rows);
      },
      nb::sig("def __iter__(self) -> typing.Iterator[Tensor]"));
  tensor.def("__getitem__", &get_item, nb::arg("key"),
             "x[1, ..., 2:5, None]: a view. x[rows] with an int64 tensor of rank 1: those rows, a copy.");
}

}  // namespace

void add_tensor(nb::module_& m) {
  nb::enum_<DType> dtype(m, "DType", "The type of a tensor's elements.");
  for (const DType d : {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::int32,
                        DType::uint8, DType::boolean}) {
    dtype.value(std::string(to_string(d)).c_str(), d);
    const std::string own = std::string(to_string(d)) + (d == DType::boolean ? "_" : "");  // bool is Python's
    m.attr(own.c_str()) = nb::cast(d);
  }
  nb::class_<Tensor> tensor(m, "Tensor", nb::dynamic_attr(), nb::is_weak_referenceable(), doc("Tensor"));
  tensor.def_prop_ro("shape", [](const Tensor& x) { return x.sizes(); })
      .def_prop_ro(
          "strides", [](const Tensor& x) { return x.strides(); }, "In elements.")
      .def("storage_offset", &Tensor::offset, "Where the first element stands in the storage, in elements.")
      .def_prop_ro("dtype", &Tensor::dtype)
      .def_prop_ro("device", [](const Tensor& x) { return to_string(x.device()); })
      .def_prop_ro("ndim", &Tensor::rank)
      .def_prop_ro(
          "memory_format", [](const Tensor& x) { return std::string(to_string(x.suggest_memory_format())); },
          "'contiguous' or 'channels_last': the format that results computed from this tensor have.")
      .def_prop_ro("version", &Tensor::version, "In-place changes so far, counted over all views of the memory.")
      .def("numel", &Tensor::numel)
      .def("dim", &Tensor::rank)
      .def(
          "size",
          [](const Tensor& x, std::optional<int64_t> dim) {
            return dim ? nb::cast(x.size(*dim)) : nb::cast(x.sizes());
          },
          nb::arg("dim") = nb::none(), nb::sig("def size(self, dim: int | None = None) -> typing.Any"))
      .def(
          "is_contiguous",
          [](const Tensor& x, const std::string& format) {
            return x.is_contiguous(memory_format_named("is_contiguous", format));
          },
          nb::arg("memory_format") = "contiguous")
      .def("is_same", &Tensor::is_same, nb::arg("other"),
           "True iff both are the same tensor, not merely equal in value.")
      .def("item", &item, nb::sig("def item(self) -> float"), "The value of a tensor with one element.")
      .def("tolist", &to_list, nb::sig("def tolist(self) -> typing.Any"), "All values as nested lists.")
      .def("__bool__", &truth)
      .def("__float__", [](const Tensor& x) { return nb::cast<double>(nb::float_(item(x))); })
      .def("__int__", [](const Tensor& x) { return nb::cast<int64_t>(nb::int_(item(x))); })
      .def("__len__",
           [](const Tensor& x) {
             check(x.rank() > 0, "len", "expected a tensor of rank 1 or more, got one of rank 0");
             return x.size(0);
           })
      .def("__repr__", &text_of, Released());
  // The tape.
  tensor
      .def_prop_rw(
          "requires_grad", &Tensor::requires_grad, [](Tensor& x, bool value) { x.set_requires_grad(value); },
          "True iff a gradient flows to this tensor. Set it on leaves.")
      .def(
          "requires_grad_", [](Tensor x, bool value) { return x.set_requires_grad(value); },
          nb::arg("requires_grad") = true)
      .def_prop_ro("is_leaf", &Tensor::is_leaf)
      .def_prop_rw(
          "grad", [](const Tensor& x) { return none_if_undefined(x.grad()); },
          [](Tensor& x, const Optional& gradient) { x.set_grad(tensor_or_none(gradient)); }, nb::arg("gradient").none(),
          "The gradient that backward() has accumulated, or None.")
      .def("detach", &Tensor::detach, "The same memory without a place on the tape.")
      .def("bump_version", &Tensor::bump_version,
           "Counts a change that was made through other handles on the memory, as by NumPy.")
      .def(
          "register_hook",
          [](const Tensor& x, std::function<Optional(const Tensor&)> hook) {
            x.register_hook(
                [hook = std::move(hook)](const Tensor& gradient) { return tensor_or_none(hook(gradient)); });
          },
          nb::arg("hook"), "Calls `hook` with the complete gradient; what it returns, if not None, takes its place.")
      .def(
          "backward",
          [](const Tensor& x, const Optional& gradient, bool retain_graph, bool create_graph) {
            backward(x, tensor_or_none(gradient), {.retain_graph = retain_graph, .create_graph = create_graph});
          },
          nb::arg("gradient") = nb::none(), nb::kw_only(), nb::arg("retain_graph") = false,
          nb::arg("create_graph") = false, Released(), doc("backward"));
  // Copies.
  tensor
      .def(
          "clone",
          [](const Tensor& x, const std::string& format) { return clone(x, memory_format_named("clone", format)); },
          nb::arg("memory_format") = "preserve", Released(), doc("clone"))
      .def(
          "contiguous",
          [](const Tensor& x, const std::string& format) {
            return contiguous(x, memory_format_named("contiguous", format));
          },
          nb::arg("memory_format") = "contiguous", Released(), doc("contiguous"))
      .def(
          "to",
          [](const Tensor& x, std::optional<std::variant<DType, std::string>> what, std::optional<DType> dtype,
             const std::optional<std::string>& device, const std::optional<std::string>& format) {
            Tensor y = x;
            if (what) {
              if (const auto* const type = std::get_if<DType>(&*what)) {
                y = to(y, *type);
              } else {
                y = to(y, device_from_string(std::get<std::string>(*what)));
              }
            }
            y = dtype ? to(y, *dtype) : y;
            y = device ? to(y, device_from_string(*device)) : y;
            return format ? to(y, memory_format_named("to", *format)) : y;
          },
          nb::arg("dtype_or_device") = nb::none(), nb::kw_only(), nb::arg("dtype") = nb::none(),
          nb::arg("device") = nb::none(), nb::arg("memory_format") = nb::none(), Released(),
          "The tensor in another dtype, on another device, in another memory format; itself where nothing differs.");
  add_copies(m, tensor);
  add_dlpack(m, tensor);
  add_indexing(tensor);
  add_pointwise(m, tensor);
  add_shapes(m, tensor);
}

}  // namespace norma::python
