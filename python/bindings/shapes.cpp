#include "python/bindings/bindings.h"

#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
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
  m.def(name, f, nb::arg("input"), extra..., Released(), doc(name));
  tensor.def(name, f, extra..., Released(), doc(name));
}

/// The numbers of x.view(2, 3) or of x.view([2, 3]).
Sizes sizes_in(const nb::args& numbers) {
  return nb::cast<Sizes>(numbers.size() == 1 ? nb::object(numbers[0]) : nb::object(numbers));
}

void add_views(nb::module_& m, nb::class_<Tensor>& tensor) {
  const auto of_numbers = [&]<class F>(const char* name, const char* argument, F f) {
    m.def(name, f, nb::arg("input"), nb::arg(argument), Released(), doc(name));
    const std::string signature =
        fmt::format("def {}(self, *{}: int | collections.abc.Sequence[int]) -> Tensor", name, argument);
    tensor.def(
        name, [f](const Tensor& x, const nb::args& numbers) { return f(x, sizes_in(numbers)); },
        nb::sig(signature.c_str()), doc(name));
  };
  of_numbers("view", "shape", &view);
  of_numbers("reshape", "shape", &reshape);
  of_numbers("permute", "dims", &permute);
  of_numbers("expand", "size", &expand);
  add_both(m, tensor, "flatten", &flatten, nb::arg("start_dim") = 0, nb::arg("end_dim") = -1);
  add_both(m, tensor, "transpose", &transpose, nb::arg("dim0"), nb::arg("dim1"));
  add_both(m, tensor, "narrow", &narrow, nb::arg("dim"), nb::arg("start"), nb::arg("length"));
  add_both(m, tensor, "select", &select, nb::arg("dim"), nb::arg("index"));
  add_both(m, tensor, "unsqueeze", &unsqueeze, nb::arg("dim"));
  add_both(
      m, tensor, "squeeze",
      [](const Tensor& x, std::optional<int64_t> dim) { return dim ? squeeze(x, *dim) : squeeze(x); },
      nb::arg("dim") = nb::none());
}

void add_reductions(nb::module_& m, nb::class_<Tensor>& tensor) {
  const auto reduce = [&](const char* name, Reduce f) {
    add_both(
        m, tensor, name,
        [f](const Tensor& x, const std::optional<Axes>& dim, bool keepdim) {
          return f(x, dim.value_or(Axes()), {.keepdim = keepdim});
        },
        nb::arg("dim") = nb::none(), nb::arg("keepdim") = false);
  };
  reduce("sum", &sum);
  reduce("mean", &mean);
  reduce("amax", &max);
  reduce("prod", &prod);
  add_both(m, tensor, "max", [](const Tensor& x) { return max(x); });
  const auto spread = [&](const char* name, Tensor (*f)(const Tensor&)) {
    add_both(
        m, tensor, name,
        [f](const Tensor& x, const std::optional<Axes>& dim, int64_t correction, bool keepdim) {
          return f(var(x, dim.value_or(Axes()), {.correction = correction, .keepdim = keepdim}));
        },
        nb::arg("dim") = nb::none(), nb::arg("correction") = 1, nb::arg("keepdim") = false);
  };
  spread("var", [](const Tensor& variance) { return variance; });
  spread("std", [](const Tensor& variance) { return sqrt(variance); });
  add_both(
      m, tensor, "argmax",
      [](const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
        return dim ? argmax(x, *dim, {.keepdim = keepdim}) : argmax(x);
      },
      nb::arg("dim") = nb::none(), nb::arg("keepdim") = false);
}

}  // namespace

void add_shapes(nb::module_& m, nb::class_<Tensor>& tensor) {
  add_views(m, tensor);
  add_reductions(m, tensor);
  m.def(
      "clone", [](const Tensor& x) { return clone(x); }, nb::arg("input"), Released(), doc("clone"));
  m.def("cat", &cat, nb::arg("tensors"), nb::arg("dim") = 0, Released(), doc("cat"));
  m.def("stack", &stack, nb::arg("tensors"), nb::arg("dim") = 0, Released(), doc("stack"));
  m.def("index_select", &index_select, nb::arg("input"), nb::arg("dim"), nb::arg("index"), Released(),
        doc("index_select"));
  m.def("gather_rows", &gather_rows, nb::arg("input"), nb::arg("index"), Released(), doc("gather_rows"));
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
      nb::arg("input"), nb::arg("before"), nb::arg("after"), nb::arg("value") = 0.0, nb::arg("mode") = "constant",
      Released(), doc("pad"));
  m.def("matmul", &matmul, nb::arg("input"), nb::arg("other"), Released(), doc("matmul"));
  tensor.def("__matmul__", &matmul, nb::is_operator(), Released());
}

}  // namespace norma::python
