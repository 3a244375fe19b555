#include "core/copy.h"

#include "python/bindings/bindings.h"

#include "core/device.h"
#include "core/factory.h"

#include <cstring>

namespace norma::python {

namespace {

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

}  // namespace

void add_copies(nb::module_& m, nb::class_<Tensor>& tensor) {
  tensor.def("__copy__", &shallow_copy, nb::sig("def __copy__(self) -> Tensor"), "A new leaf on the same memory.")
      .def("__deepcopy__", &deep_copy, nb::arg("memo"),
           nb::sig("def __deepcopy__(self, memo: dict[int, typing.Any]) -> Tensor"),
           "A tensor with memory of its own, with the gradient. Throws Error for the result of an op on the tape.")
      .def("__reduce__", &pickled, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
  m.def("_rebuild_tensor", &unpickled, nb::arg("data"), nb::arg("dtype"), nb::arg("sizes"), nb::arg("strides"),
        nb::arg("device"), nb::arg("requires_grad"), "A tensor of what pickle has kept of it.");
}

}  // namespace norma::python
