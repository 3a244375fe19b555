#include "python/bindings/bindings.h"

#include "base/error.h"
#include "core/factory.h"
#include "lab/judge/norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace norma::python {

namespace {

namespace judge = lab::judge;

/// A norm's inputs in one dtype, and what is right for them.
class ConformanceCase {
 public:
  ConformanceCase(const judge::Case& from, const judge::Norm& norm, DType dtype)
      : name(from.name),
        description(from.description),
        norm(norm.name),
        inputs(judge::make_inputs(from, norm, dtype, /* quick= */ true)),
        reference_(judge::reference_inputs(norm, inputs)),
        truth_(std::make_shared<judge::Truth>(norm, inputs)) {}

  const std::string name;
  const std::string description;
  const std::string norm;
  const judge::Inputs inputs;

  [[nodiscard]] int64_t groups() const { return reference_.spec.groups; }

  /// The right results in float64: output, dx, dweight, dbias.
  [[nodiscard]] TensorDict expected() const {
    const NormReference& right = truth_->reference();
    nn::NamedTensors result{{"output", in_float64(right.all(&NormReference::y), inputs.x.sizes())},
                            {"dx", in_float64(right.all(&NormReference::dx), inputs.x.sizes())}};
    for (const auto& [parameter, values] : inputs.parameters) {
      std::vector<double> gradient;
      for (size_t i = 0; i < static_cast<size_t>(values.numel()); ++i) {
        gradient.push_back(static_cast<double>(parameter == "bias" ? right.dbias(i) : right.dweight(i)));
      }
      result.emplace_back("d" + parameter, in_float64(gradient, values.sizes()));
    }
    return dict_of(result);
  }

  /// Results that common faults give, by what is wrong: outputs, and dx of a backward pass that takes the statistics
  /// for constants.
  [[nodiscard]] TensorDict faulty() const {
    NormReferenceInputs sample = reference_;
    sample.spec.correction = 1 - sample.spec.correction;
    NormReferenceInputs constants = reference_;
    NormReferenceInputs outside = reference_;
    const NormReference& right = truth_->reference();
    for (size_t set = 0; set < static_cast<size_t>(right.sets().sets()); ++set) {
      constants.fixed_mean.push_back(right.mean(set));
      constants.fixed_rstd.push_back(right.rstd(set));
      outside.fixed_mean.push_back(right.mean(set));
      outside.fixed_rstd.push_back(1 / (std::sqrt(right.var(set)) + static_cast<long double>(outside.spec.eps)));
    }
    const auto y = [](const NormReferenceInputs& from) {
      return in_float64(NormReference(from).all(&NormReference::y), from.x.sizes());
    };
    return dict_of({{"output: the variance is that over n - 1", y(sample)},
                    {"output: eps stands outside the root", y(outside)},
                    {"dx", in_float64(NormReference(constants).all(&NormReference::dx), inputs.x.sizes())}});
  }

  /// The worst error of each result in steps of the dtype (lab/judge/norms.h).
  [[nodiscard]] std::map<std::string, double> errors(const Tensor& output, const Tensor& dx, const Tensor& dweight,
                                                     const Optional& dbias) const {
    judge::Results results{.y = output, .dx = dx, .gradients = {dweight}};
    if (dbias) {
      results.gradients.push_back(*dbias);
    }
    check(results.gradients.size() == inputs.parameters.size(), "conformance", "dbias: expected {}, got {}",
          dbias ? "none" : "a tensor", dbias ? "one" : "none");
    return judge::worst_in_steps(truth_->accuracy(results), inputs.x.dtype());
  }

 private:
  static Tensor in_float64(const std::vector<double>& values, const Sizes& sizes) {
    return from_vector(values, sizes, {.dtype = DType::float64, .device = kCpu});
  }

  NormReferenceInputs reference_;
  std::shared_ptr<judge::Truth> truth_;
};

/// The norm of a name that conformance knows: one of audit's, or rms, which is rms2d of (N, C).
judge::Norm norm_of(const std::string& name, int64_t groups) {
  if (name == "rms") {
    judge::Norm norm = judge::norm_called("rms2d");
    norm.name = name;
    norm.sizes = {45, 1100};
    norm.one_each = {9, 1};
    return norm;
  }
  if (name == "group") {
    check(groups > 0, "conformance", "num_groups: expected a positive number, got {}", groups);
    return judge::norm_called(fmt::format("group:{}", groups));
  }
  return judge::norm_called(name);
}

std::vector<ConformanceCase> cases_of(const std::string& norm_name, DType dtype, const std::vector<std::string>& names,
                                      int64_t groups) {
  const judge::Norm norm = norm_of(norm_name, groups);
  for (const std::string& name : names) {
    judge::case_called(name);
  }
  std::vector<ConformanceCase> cases;
  for (const judge::Case& one : judge::all_cases()) {
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
      .def_ro("name", &ConformanceCase::name)
      .def_ro("description", &ConformanceCase::description)
      .def_ro("norm", &ConformanceCase::norm)
      .def_prop_ro("eps", [](const ConformanceCase& self) { return self.inputs.eps; })
      .def_prop_ro("groups", &ConformanceCase::groups)
      .def_prop_ro("x", [](const ConformanceCase& self) { return self.inputs.x; })
      .def_prop_ro("weight", [](const ConformanceCase& self) { return self.inputs.parameter("weight"); })
      .def_prop_ro("bias", [](const ConformanceCase& self) { return none_if_undefined(self.inputs.parameter("bias")); })
      .def_prop_ro("dy", [](const ConformanceCase& self) { return self.inputs.dy; })
      .def("expected", &ConformanceCase::expected, "The right output, dx, dweight and dbias, in float64.")
      .def("faulty", &ConformanceCase::faulty)
      .def("errors", &ConformanceCase::errors, nb::arg("output"), nb::arg("dx"), nb::arg("dweight"),
           nb::arg("dbias") = nb::none(),
           "The worst error of each result in steps of the dtype, relative to what rounding is relative to "
           "(lab/judge/norms.h).");
  m.def("_conformance_cases", &cases_of, nb::arg("norm"), nb::arg("dtype"), nb::arg("cases"), nb::arg("num_groups"),
        Released());
  m.def("_conformance_case_names", [] {
    std::vector<std::pair<std::string, std::string>> result;
    for (const judge::Case& one : judge::all_cases()) {
      result.emplace_back(one.name, one.description);
    }
    return result;
  });
}

}  // namespace norma::python
