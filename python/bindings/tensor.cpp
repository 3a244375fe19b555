#include "python/bindings/bindings.h"

#include "core/device.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

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
