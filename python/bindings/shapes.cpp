#include "python/bindings/bindings.h"

#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

namespace norma::python {

namespace {

using Reduce = Tensor (*)(const Tensor&, const Axes&, const ReduceOptions&);

/// f is a function of the module and a method of tensors.
template <class F, class... Extra>
void add_both(nb::module_& m, nb::class_<Tensor>& tensor, const char* name, F f, const Extra&... extra) {
  m.def(name, f, nb::arg("x"), extra..., Released(), doc(name));
  tensor.def(name, f, extra..., Released(), doc(name));
}

void add_views(nb::module_& m, nb::class_<Tensor>& tensor) {
  add_both(m, tensor, "view", &view, nb::arg("shape"));
  add_both(m, tensor, "reshape", &reshape, nb::arg("shape"));
  add_both(m, tensor, "flatten", &flatten, nb::arg("start") = 0, nb::arg("end") = -1);
  add_both(m, tensor, "permute", &permute, nb::arg("order"));
  add_both(m, tensor, "transpose", &transpose, nb::arg("a"), nb::arg("b"));
  add_both(m, tensor, "expand", &expand, nb::arg("shape"));
  add_both(m, tensor, "narrow", &narrow, nb::arg("axis"), nb::arg("start"), nb::arg("length"));
  add_both(m, tensor, "select", &select, nb::arg("axis"), nb::arg("index"));
  add_both(m, tensor, "unsqueeze", &unsqueeze, nb::arg("axis"));
  add_both(
      m, tensor, "squeeze",
      [](const Tensor& x, std::optional<int64_t> axis) { return axis ? squeeze(x, *axis) : squeeze(x); },
      nb::arg("axis") = nb::none());
}

void add_reductions(nb::module_& m, nb::class_<Tensor>& tensor) {
  const auto reduce = [&](const char* name, Reduce f) {
    add_both(
        m, tensor, name,
        [f](const Tensor& x, const std::optional<Axes>& axes, bool keepdim) {
          return f(x, axes.value_or(Axes()), {.keepdim = keepdim});
        },
        nb::arg("axes") = nb::none(), nb::arg("keepdim") = false);
  };
  reduce("sum", &sum);
  reduce("mean", &mean);
  reduce("max", &max);
  reduce("prod", &prod);
  add_both(
      m, tensor, "var",
      [](const Tensor& x, const std::optional<Axes>& axes, int64_t correction, bool keepdim) {
        return var(x, axes.value_or(Axes()), {.correction = correction, .keepdim = keepdim});
      },
      nb::arg("axes") = nb::none(), nb::arg("correction") = 1, nb::arg("keepdim") = false);
  add_both(
      m, tensor, "argmax",
      [](const Tensor& x, std::optional<int64_t> axis, bool keepdim) {
        return axis ? argmax(x, *axis, {.keepdim = keepdim}) : argmax(x);
      },
      nb::arg("axis") = nb::none(), nb::arg("keepdim") = false);
}

}  // namespace

void add_shapes(nb::module_& m, nb::class_<Tensor>& tensor) {
  add_views(m, tensor);
  add_reductions(m, tensor);
  m.def(
      "clone", [](const Tensor& x) { return clone(x); }, nb::arg("x"), Released(), doc("clone"));
  m.def("cat", &cat, nb::arg("xs"), nb::arg("axis") = 0, Released(), doc("cat"));
  m.def("stack", &stack, nb::arg("xs"), nb::arg("axis") = 0, Released(), doc("stack"));
  m.def("index_select", &index_select, nb::arg("x"), nb::arg("axis"), nb::arg("index"), Released(),
        doc("index_select"));
  m.def("gather_rows", &gather_rows, nb::arg("x"), nb::arg("index"), Released(), doc("gather_rows"));
  m.def(
      "pad",
      [](const Tensor& x, const Sizes& before, const Sizes& after, double value, const std::string& mode) {
        const auto how = value_named<PadMode>("pad", "mode", mode,
                                              {{"constant", PadMode::constant},
                                               {"reflect", PadMode::reflect},
                                               {"replicate", PadMode::replicate},
                                               {"circular", PadMode::circular}});
        return how == PadMode::constant ? pad(x, before, after, value) : pad(x, before, after, how);
      },
      nb::arg("x"), nb::arg("before"), nb::arg("after"), nb::arg("value") = 0.0, nb::arg("mode") = "constant",
      Released(), doc("pad"));
  m.def("matmul", &matmul, nb::arg("a"), nb::arg("b"), Released(), doc("matmul"));
  tensor.def("__matmul__", &matmul, nb::is_operator(), Released());
}

}  // namespace norma::python
