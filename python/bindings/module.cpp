#include "python/bindings/bindings.h"

#include "core/autocast.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/version.h"

#include <algorithm>
#include <exception>
#include <map>

namespace norma::python {

const char* doc(std::string_view name) {
  static const std::map<std::string_view, const char*> comments = {
#include "python/docstrings.inc"
  };
  const auto found = comments.find(name);
  return found == comments.end() ? "" : found->second;
}

MemoryFormat memory_format_named(std::string_view op, std::string_view name) {
  return value_named<MemoryFormat>(op, "memory_format", name,
                                   {{"contiguous", MemoryFormat::contiguous},
                                    {"channels_last", MemoryFormat::channels_last},
                                    {"preserve", MemoryFormat::preserve}});
}

ActOptions then(const std::string& activation, const Optional& residual) {
  return {.activation = value_named<Activation>("norma", "activation", activation,
                                                {{"identity", Activation::identity},
                                                 {"relu", Activation::relu},
                                                 {"gelu", Activation::gelu},
                                                 {"silu", Activation::silu}}),
          .residual = tensor_or_none(residual)};
}

template <class E>
void add_error(nb::module_& m, const char* name, PyObject* base, const char* text) {
  const nb::exception<E> type(m, name, base);
  type.attr("__doc__") = text;
  // It is asked before nanobind's own, which would raise UnicodeDecodeError for a file whose name is not UTF-8.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* its_type) {
        try {
          std::rethrow_exception(thrown);
        } catch (const E& error) {
          PyErr_SetObject(static_cast<PyObject*>(its_type), decoded(error.what()).ptr());
        }
      },
      type.ptr());
}

void add_errors(nb::module_& m) {
  add_error<Error>(m, "Error", PyExc_RuntimeError,
                   "What Norma throws for wrong arguments and files: 'op: argument: expected …, got …'.");
  add_error<OutOfMemory>(m, "OutOfMemory", PyExc_MemoryError, doc("OutOfMemory"));
}

}  // namespace norma::python

NB_MODULE(_norma, m) {
  using namespace norma;
  using namespace norma::python;
  nb::set_leak_warnings(false);  // modules in the registry of norms live as long as the process
  m.def(
      "version", [] { return std::string(version()); }, doc("version"));
  add_errors(m);
  add_tensor(m);
  add_factories(m);
  add_tape(m);
  add_layers_ops(m);
  add_norm_ops(m);
  add_modules(m);
  add_layers(m);
  add_optimizers(m);
  add_norm_registry(m);
  add_lab(m);
  add_conformance(m);
  m.def("num_threads", &num_threads, doc("num_threads"));
  m.def("set_num_threads", &set_num_threads, nb::arg("count"), doc("set_num_threads"));
  m.def("set_flush_denormal", &set_flush_denormal, nb::arg("mode"), doc("set_flush_denormal"));
  m.def("manual_seed", &manual_seed, nb::arg("seed"), doc("manual_seed"));
}
