#include "python/bindings/bindings.h"

#include "core/factory.h"
#include "lab/audit/cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace norma::python {

namespace {

using lab::audit::Errors;

/// A norm's inputs in one dtype, and what is right for them.
class ConformanceCase {
 public:
  ConformanceCase(const lab::audit::Case& from, const lab::audit::Norm& norm, DType dtype)
      : name_(from.name),
        description_(from.description),
        inputs_(make_inputs(from, norm, dtype, /* quick= */ true)),
        truth_(std::make_shared<lab::audit::NormTruth>(inputs_)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& description() const { return description_; }
  [[nodiscard]] const NormReferenceInputs& inputs() const { return inputs_; }

  /// The right results in float64: output, dx, dweight, dbias.
  [[nodiscard]] TensorDict expected() const {
    const NormReference& right = truth_->reference();
    nn::NamedTensors result{{"output", in_float64(right.all(&NormReference::y), inputs_.x.sizes())},
                            {"dx", in_float64(right.all(&NormReference::dx), inputs_.x.sizes())}};
    std::vector<double> dweight;
    std::vector<double> dbias;
    for (size_t i = 0; i < static_cast<size_t>(inputs_.weight.numel()); ++i) {
      dweight.push_back(static_cast<double>(right.dweight(i)));
      dbias.push_back(static_cast<double>(right.dbias(i)));
    }
    result.emplace_back("dweight", in_float64(dweight, inputs_.weight.sizes()));
    if (inputs_.bias.defined()) {
      result.emplace_back("dbias", in_float64(dbias, inputs_.bias.sizes()));
    }
    return dict_of(result);
  }

  /// Results that common faults give, by what is wrong: outputs, and dx of a backward pass that takes the statistics
  /// for constants.
  [[nodiscard]] TensorDict faulty() const {
    NormReferenceInputs sample = inputs_;
    sample.spec.correction = 1 - sample.spec.correction;
    NormReferenceInputs constants = inputs_;
    NormReferenceInputs outside = inputs_;
    const NormReference& right = truth_->reference();
    for (size_t set = 0; set < static_cast<size_t>(right.sets().sets()); ++set) {
      constants.fixed_mean.push_back(right.mean(set));
      constants.fixed_rstd.push_back(right.rstd(set));
      outside.fixed_mean.push_back(right.mean(set));
      outside.fixed_rstd.push_back(1 / (std::sqrt(right.var(set)) + static_cast<long double>(outside.spec.eps)));
    }
    const auto y = [&](const NormReferenceInputs& inputs) {
      return in_float64(NormReference(inputs).all(&NormReference::y), inputs.x.sizes());
    };
    return dict_of({{"output: the variance is that over n - 1", y(sample)},
                    {"output: eps stands outside the root", y(outside)},
                    {"dx", in_float64(NormReference(constants).all(&NormReference::dx), inputs_.x.sizes())}});
  }

  /// The worst error of each result, in the units of lab/audit/accuracy.h; infinite where a number is not finite and
  /// should be.
  [[nodiscard]] std::map<std::string, double> errors(const Tensor& output, const Tensor& dx, const Tensor& dweight,
                                                     const Optional& dbias) const {
    const lab::audit::Accuracy found =
        truth_->accuracy({.y = output, .dx = dx, .dweight = dweight, .dbias = tensor_or_none(dbias)});
    std::map<std::string, double> result{
        {"output", found.output.worst}, {"dx", found.dx.worst}, {"dweight", found.dweight.worst}};
    if (inputs_.bias.defined()) {
      result["dbias"] = found.dbias.worst;
    }
    // A number in the place of the truth's NaN has no distance from it.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (found.wrong_outputs > 0) {
      result["output"] = kInfinity;
    }
    if (found.wrong_gradients > 0 && std::isfinite(found.dweight.worst) && std::isfinite(found.dbias.worst)) {
      result["dx"] = kInfinity;
    }
    return result;
  }

 private:
  static Tensor in_float64(const std::vector<double>& values, const Sizes& sizes) {
    return from_vector(values, sizes, {.dtype = DType::float64, .device = kCpu});
  }

  std::string name_;
  std::string description_;
  NormReferenceInputs inputs_;
  std::shared_ptr<lab::audit::NormTruth> truth_;
};

std::vector<ConformanceCase> cases_of(const std::string& norm_name, DType dtype, const std::vector<std::string>& names,
                                      int64_t groups) {
  const bool rows = norm_name == "rms";  // rms2d of (N, C)
  lab::audit::Norm norm = lab::audit::norm_called(rows ? "rms2d" : norm_name);
  if (rows) {
    norm.sizes = {45, 1100};
    norm.one_each = {9, 1};
  }
  if (norm_name == "group") {
    check(groups > 0, "conformance", "num_groups: expected a positive number, got {}", groups);
    norm.sizes[1] = norm.sizes[1] / norm.spec(norm.sizes.size()).groups * groups;
    (*norm.one_each)[1] = groups;
    norm.spec = [spec = norm.spec, groups](int64_t rank) {
      NormSpec result = spec(rank);
      result.groups = groups;
      return result;
    };
  }
  for (const std::string& name : names) {
    lab::audit::case_called(name);
  }
  std::vector<ConformanceCase> cases;
  for (const lab::audit::Case& one : lab::audit::all_cases()) {
    if (why_not_taken(one, norm).empty() && why_not_held(one, dtype).empty() &&
        (names.empty() || std::ranges::find(names, one.name) != names.end())) {
      cases.emplace_back(one, norm, dtype);
    }
  }
  return cases;
}

}  // namespace

void add_conformance(nb::module_& m) {
  nb::class_<ConformanceCase>(m, "_ConformanceCase", "A norm's inputs in one dtype, and what is right for them.")
      .def_prop_ro("name", &ConformanceCase::name)
      .def_prop_ro("description", &ConformanceCase::description)
      .def_prop_ro("eps", [](const ConformanceCase& self) { return self.inputs().spec.eps; })
      .def_prop_ro("groups", [](const ConformanceCase& self) { return self.inputs().spec.groups; })
      .def_prop_ro("x", [](const ConformanceCase& self) { return self.inputs().x; })
      .def_prop_ro("weight", [](const ConformanceCase& self) { return self.inputs().weight; })
      .def_prop_ro("bias", [](const ConformanceCase& self) { return none_if_undefined(self.inputs().bias); })
      .def_prop_ro("dy", [](const ConformanceCase& self) { return self.inputs().dy; })
      .def("expected", &ConformanceCase::expected, "The right output, dx, dweight and dbias, in float64.")
      .def("faulty", &ConformanceCase::faulty)
      .def("errors", &ConformanceCase::errors, nb::arg("output"), nb::arg("dx"), nb::arg("dweight"),
           nb::arg("dbias") = nb::none(),
           "The worst error of each result, relative to what rounding is relative to (lab/audit/accuracy.h).");
  m.def("_conformance_cases", &cases_of, nb::arg("norm"), nb::arg("dtype"), nb::arg("cases"), nb::arg("num_groups"),
        Released());
  m.def("_conformance_case_names", [] {
    std::vector<std::pair<std::string, std::string>> result;
    for (const lab::audit::Case& one : lab::audit::all_cases()) {
      result.emplace_back(one.name, one.description);
    }
    return result;
  });
}

}  // namespace norma::python
