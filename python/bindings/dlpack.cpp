#include "core/dlpack.h"

#include "python/bindings/bindings.h"

#include "core/copy.h"
#include "core/device.h"
#include "ops/shape/copy.h"

#include <dlpack/dlpack.h>
#include <nanobind/ndarray.h>

namespace norma::python {

namespace {

// The protocol names a capsule so until somebody has taken its tensor, and otherwise afterwards.
constexpr const char* kFresh = "dltensor";
constexpr const char* kTaken = "used_dltensor";

/// x as an object of nanobind or NumPy on the same memory, which also tells its takers that they may write.
template <class... Framework>
nb::object array_of(const Tensor& x) {
  DLManagedTensor* const managed = to_dlpack(x);
  // Its deleter knows what has to be done on a GPU before the memory is Norma's again.
  const nb::capsule owner(managed, [](void* taken) noexcept {
    auto* const tensor = static_cast<DLManagedTensor*>(taken);
    tensor->deleter(tensor);
  });
  const DLTensor& given = managed->dl_tensor;
  const std::vector<size_t> shape(given.shape, given.shape + given.ndim);
  return nb::cast(nb::ndarray<Framework...>(given.data, shape.size(), shape.data(), owner, given.strides,
                                            nb::dlpack::dtype{given.dtype.code, given.dtype.bits, given.dtype.lanes},
                                            given.device.device_type, given.device.device_id));
}

nb::object capsule_of(const Tensor& x, nb::kwargs arguments) {
  bool copies = false;
  if (arguments.contains("copy")) {
    copies = nb::cast<std::optional<bool>>(arguments["copy"]).value_or(false);
    nb::del(arguments["copy"]);
  }
  return array_of<nb::array_api>(copies ? clone(x.detach()) : x).attr("__dlpack__")(**arguments);
}

nb::object numpy_array(const Tensor& x) {
  check(x.dtype() != DType::bfloat16, "numpy",
        "x: expected a dtype that NumPy has, got bfloat16; convert it with to(norma.float32)");
  check(is_host(x.device()), "numpy", "x: expected a tensor on cpu, got one on {}; copy it with to('cpu')",
        to_string(x.device()));
  return array_of<nb::numpy>(x);
}

}  // namespace

Tensor from_dlpack_object(const nb::object& x) {
  if (nb::isinstance<Tensor>(x)) {
    return nb::cast<Tensor>(x).detach();
  }
  nb::object capsule = x;
  if (nb::hasattr(x, "__dlpack__")) {
    nb::dict arguments;
    if (nb::hasattr(x, "__dlpack_device__")) {
      const nb::object device = x.attr("__dlpack_device__")();
      if (nb::cast<int>(device[0]) == kDLCUDA) {
        arguments["stream"] = 1;  // the default stream, for which from_dlpack() waits
      }
    }
    try {
      capsule = x.attr("__dlpack__")(**arguments);
    } catch (const nb::python_error& error) {
      if (error.matches(PyExc_BufferError)) {
        fail("from_dlpack", "x: {}", nb::cast<std::string>(nb::str(error.value())));
      }
      throw;
    }
  }
  check(PyCapsule_IsValid(capsule.ptr(), kFresh) != 0, "from_dlpack", "x: expected an array with __dlpack__, got {}",
        PyCapsule_IsValid(capsule.ptr(), kTaken) != 0 ? std::string("a capsule whose tensor somebody has taken")
                                                      : nb::cast<std::string>(x.type().attr("__name__")));
  const Tensor result = from_dlpack(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kFresh)));
  PyCapsule_SetName(capsule.ptr(), kTaken);
  return result;
}

bool is_numpy_array(const nb::handle& x) {
  // NumPy need not be installed, but then nobody has an array of it.
  const nb::handle numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
  return numpy.is_valid() && nb::isinstance(x, numpy.attr("ndarray"));
}

Tensor copy_of_array(const nb::object& x, std::optional<DType> dtype) {
  nb::object array = x;
  if (is_numpy_array(x)) {
    bool can_be_shared = nb::cast<bool>(x.attr("flags").attr("writeable"));
    for (const int64_t stride : nb::cast<Sizes>(x.attr("strides"))) {
      can_be_shared = can_be_shared && stride >= 0;
    }
    array = can_be_shared ? x : x.attr("copy")("K");
  }
  const Tensor shared = from_dlpack_object(array);
  return copy_of(shared, MemoryFormat::preserve, dtype.value_or(shared.dtype()));
}

void add_dlpack(nb::module_& m, nb::class_<Tensor>& tensor) {
  m.def(
      "from_dlpack", &from_dlpack_object, nb::arg("ext_tensor"),
      "A tensor on the memory of an array of NumPy, PyTorch, JAX, … without a copy. Changes that the other side makes "
      "are seen, but not counted: call bump_version() after one.");
  tensor
      .def("__dlpack__", &capsule_of,
           nb::sig("def __dlpack__(self, *, stream: typing.Any = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
      .def("__dlpack_device__", &dlpack_device)
      .def("numpy", &numpy_array, nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"),
           "An array of NumPy on the same memory, without a place on the tape.")
      .def(
          "__array__",
          [](const Tensor& x, const nb::object& dtype, const nb::object& copy) {
            return nb::module_::import_("numpy").attr("array")(numpy_array(x), nb::arg("dtype") = dtype,
                                                               nb::arg("copy") = copy);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none());
}

}  // namespace norma::python
