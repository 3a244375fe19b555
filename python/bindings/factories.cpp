#include "core/factory.h"

#include "python/bindings/bindings.h"

#include "core/copy.h"
#include "core/device.h"

namespace norma::python {

namespace {

TensorOptions options(DType dtype, const std::optional<std::string>& device, const std::string& format) {
  return {.dtype = dtype,
          .device = device ? device_from_string(*device) : default_device(),
          .format = memory_format_named("norma", format)};
}

/// The elements of nested sequences in row-major order.
struct Elements {
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  Sizes sizes;
  bool any_float = false;
  bool all_bool = true;

  void add(const nb::handle& item, int64_t depth) {
    const nb::object x = number_of(item);
    if (PyFloat_Check(x.ptr()) != 0 || PyLong_Check(x.ptr()) != 0) {
      check(depth == sizes.size(), "tensor", "data: expected lists of equal lengths");
      const bool is_float = PyFloat_Check(x.ptr()) != 0;
      any_float = any_float || is_float;
      all_bool = all_bool && PyBool_Check(x.ptr()) != 0;
      int overflow = 0;
      integers.push_back(is_float ? 0 : PyLong_AsLongLongAndOverflow(x.ptr(), &overflow));
      check(overflow == 0, "tensor", "data: expected integers of 64 bits, got {}", nb::cast<std::string>(nb::str(x)));
      numbers.push_back(is_float ? nb::cast<double>(x) : static_cast<double>(integers.back()));
      return;
    }
    check(PySequence_Check(x.ptr()) != 0 && !nb::isinstance<nb::str>(x), "tensor",
          "data: expected numbers, nested lists of them, or an array with __dlpack__, got {}",
          nb::cast<std::string>(x.type().attr("__name__")));
    const auto length = static_cast<int64_t>(nb::len(x));
    if (depth == sizes.size()) {
      check(numbers.empty(), "tensor", "data: expected lists of equal lengths");
      sizes.push_back(length);
    }
    check(sizes[depth] == length, "tensor", "data: expected lists of equal lengths, got one of {} and one of {}",
          sizes[depth], length);
    for (const nb::handle inner : x) {
      add(inner, depth + 1);
    }
  }

  /// The number of Python that a scalar of NumPy stands for, or an array or a tensor of rank 0; x itself for others.
  static nb::object number_of(const nb::handle& x) {
    const bool is_scalar = PyFloat_Check(x.ptr()) == 0 && PyLong_Check(x.ptr()) == 0 && nb::hasattr(x, "item") &&
                           nb::hasattr(x, "ndim") && nb::cast<int64_t>(x.attr("ndim")) == 0;
    return is_scalar ? x.attr("item")() : nb::borrow(x);
  }

  /// Throws Error for a number that `dtype` does not hold.
  void check_range(DType dtype) const {
    if (any_float || dtype != DType::int64) {  // an integer near 2^63 has no double, but fits into an int64
      for (const double number : numbers) {
        check_holds("tensor", "data", dtype, number);
      }
    }
  }
};

Tensor tensor_of(const nb::object& data, std::optional<DType> dtype, const std::optional<std::string>& device,
                 bool requires_grad) {
  const Device place = device ? device_from_string(*device) : default_device();
  Tensor x;
  if (nb::hasattr(data, "__dlpack__")) {
    x = to_device(copy_of_array(data, dtype), place);
  } else {
    Elements elements;
    elements.add(data, 0);
    elements.check_range(dtype.value_or(DType::float32));
    const bool is_integer = !elements.any_float && !elements.numbers.empty();
    x = is_integer ? from_vector(elements.integers, elements.sizes, {.dtype = DType::int64, .device = kCpu})
                   : from_vector(elements.numbers, elements.sizes, {.dtype = DType::float64, .device = kCpu});
    const DType own = !is_integer ? DType::float32 : elements.all_bool ? DType::boolean : DType::int64;
    x = to_device(copy_of(x, MemoryFormat::contiguous, dtype.value_or(own)), place);
  }
  return x.set_requires_grad(requires_grad);
}

/// full() with an integer that a double need not hold.
Tensor filled(const Sizes& shape, const std::variant<int64_t, double>& value, const TensorOptions& options) {
  const auto* const integer = std::get_if<int64_t>(&value);
  if (integer == nullptr || options.dtype != DType::int64) {
    return full(shape, integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value), options);
  }
  Tensor x = empty(shape, options);
  copy_into(from_vector<int64_t>({*integer}, {}, {.dtype = DType::int64, .device = options.device}), x);
  return x;
}

template <class... More>
void add_factory(nb::module_& m, const char* name, Tensor (*make)(const Sizes&, const TensorOptions&)) {
  m.def(
      name,
      [make](const Sizes& shape, DType dtype, const std::optional<std::string>& device, const std::string& format,
             bool requires_grad) {
        return make(shape, options(dtype, device, format)).set_requires_grad(requires_grad);
      },
      nb::arg("size"), nb::kw_only(), nb::arg("dtype") = DType::float32, nb::arg("device") = nb::none(),
      nb::arg("memory_format") = "contiguous", nb::arg("requires_grad") = false, Released(), doc(name));
}

}  // namespace

void add_factories(nb::module_& m) {
  m.def("tensor", &tensor_of, nb::arg("data"), nb::kw_only(), nb::arg("dtype") = nb::none(),
        nb::arg("device") = nb::none(), nb::arg("requires_grad") = false,
        "A new tensor with the values of nested lists (float32, int64 or bool unless a dtype is given), or of an array "
        "with __dlpack__; of NumPy's also a read-only or reversed one.");
  add_factory(m, "empty", [](const Sizes& s, const TensorOptions& o) { return empty(s, o); });
  add_factory(m, "zeros", [](const Sizes& s, const TensorOptions& o) { return zeros(s, o); });
  add_factory(m, "ones", [](const Sizes& s, const TensorOptions& o) { return ones(s, o); });
  add_factory(m, "rand", [](const Sizes& s, const TensorOptions& o) { return rand(s, o); });
  add_factory(m, "randn", [](const Sizes& s, const TensorOptions& o) { return randn(s, o); });
  m.def(
      "full",
      [](const Sizes& shape, const std::variant<int64_t, double>& value, DType dtype,
         const std::optional<std::string>& device, const std::string& format, bool requires_grad) {
        return filled(shape, value, options(dtype, device, format)).set_requires_grad(requires_grad);
      },
      nb::arg("size"), nb::arg("fill_value"), nb::kw_only(), nb::arg("dtype") = DType::float32,
      nb::arg("device") = nb::none(), nb::arg("memory_format") = "contiguous", nb::arg("requires_grad") = false,
      Released());
  m.def(
      "arange", [](int64_t count, DType dtype) { return arange(count, dtype); }, nb::arg("end"), nb::kw_only(),
      nb::arg("dtype") = DType::int64, doc("arange"));
  m.def(
      "randint", [](int64_t low, int64_t high, const Sizes& shape) { return randint(low, high, shape); },
      nb::arg("low"), nb::arg("high"), nb::arg("size"), doc("randint"));
  m.def(
      "zeros_like", [](const Tensor& x) { return zeros_like(x); }, nb::arg("input"));
  m.def(
      "ones_like", [](const Tensor& x) { return ones_like(x); }, nb::arg("input"));
  m.def(
      "empty_like", [](const Tensor& x) { return empty_like(x); }, nb::arg("input"), doc("empty_like"));
  m.def(
      "default_device", [] { return to_string(default_device()); }, doc("default_device"));
  m.def(
      "set_default_device", [](const std::string& device) { set_default_device(device_from_string(device)); },
      nb::arg("device"), doc("set_default_device"));
}

}  // namespace norma::python
