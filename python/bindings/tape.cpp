#include "core/tape.h"

#include "python/bindings/bindings.h"

#include "core/gradcheck.h"

namespace norma::python {

namespace {

/// A function of Python as Norma's functions of tensors call it.
using Function = nb::typed<nb::callable, std::variant<Tensor, std::vector<Tensor>>(...)>;

TensorFunction tensor_function(const Function& f) {
  return [f](const Tensors& inputs) -> Tensors {
    const nb::gil_scoped_acquire gil;
    const nb::object result = f(*nb::tuple(nb::cast(inputs)));
    if (nb::isinstance<Tensor>(result)) {
      return {nb::cast<Tensor>(result)};
    }
    return nb::cast<Tensors>(result);
  };
}

/// A tensor, or several; a tensor is not taken for the list of its rows.
using OneOrMore = std::variant<Tensor, std::vector<Tensor>>;
Tensors list_of(const OneOrMore& x) {
  const auto* const one = std::get_if<Tensor>(&x);
  return one != nullptr ? Tensors{*one} : std::get<std::vector<Tensor>>(x);
}

using Check = GradcheckResult (*)(const TensorFunction&, const Tensors&, const GradcheckOptions&);

void add_check(nb::module_& m, const char* name, Check check_gradients) {
  m.def(
      name,
      [check_gradients, name](const Function& f, const Tensors& inputs, double eps, double atol, double rtol) {
        const TensorFunction function = tensor_function(f);
        const nb::gil_scoped_release released;
        const GradcheckResult result = check_gradients(function, inputs, {.eps = eps, .atol = atol, .rtol = rtol});
        check(result.passed, name, "{}", result.message);
        return result.worst;
      },
      nb::arg("f"), nb::arg("inputs"), nb::kw_only(), nb::arg("eps") = 1e-6, nb::arg("atol") = 1e-6,
      nb::arg("rtol") = 1e-4, doc(name));
}

}  // namespace

void add_tape(nb::module_& m) {
  m.def("grad_enabled", &grad_enabled, doc("grad_enabled"));
  m.def("set_grad_enabled", &set_grad_enabled, nb::arg("enabled"));
  m.def("remakes_outputs", &remakes_outputs, doc("remakes_outputs"));
  m.def("set_remakes_outputs", &set_remakes_outputs, nb::arg("on"));
  m.def(
      "grad",
      [](const OneOrMore& outputs, const OneOrMore& inputs, const std::optional<OneOrMore>& grad_outputs,
         bool retain_graph, bool create_graph) {
        std::vector<Optional> result;
        for (const Tensor& x :
             grad(list_of(outputs), list_of(inputs), grad_outputs ? list_of(*grad_outputs) : Tensors(),
                  {.retain_graph = retain_graph, .create_graph = create_graph})) {
          result.push_back(none_if_undefined(x));
        }
        return result;
      },
      nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs") = nb::none(), nb::kw_only(),
      nb::arg("retain_graph") = false, nb::arg("create_graph") = false, Released(), doc("grad"));
  add_check(m, "gradcheck", &gradcheck);
  add_check(m, "gradgradcheck", &gradgradcheck);
  nb::class_<Tape>(m, "Tape", doc("Tape"))
      .def(nb::init<const Tensor&>(), nb::arg("root"))
      .def("saved_bytes", &Tape::saved_bytes, "Bytes that live only because backward will need them.")
      .def("summary", &Tape::summary, "A table with one line per op name and dtype.")
      .def(
          "graphviz", [](const Tape& tape, const NamedLeaves& names) { return tape.graphviz(names); },
          nb::arg("names") = NamedLeaves(), "A picture of the nodes and edges for Graphviz.")
      .def("__len__", [](const Tape& tape) { return tape.nodes().size(); })
      .def(
          "op_names",
          [](const Tape& tape) {
            std::vector<std::string> names;
            for (const auto& node : tape.nodes()) {
              names.push_back(node->name);
            }
            return names;
          },
          "The names of the ops, in the order of recording.")
      .def("__repr__", &Tape::summary);
}

}  // namespace norma::python
