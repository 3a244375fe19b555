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

  /// dx as it would be if the statistics did not depend on x: dy * weight * rstd. A backward pass that forgets them
  /// gives this.
  [[nodiscard]] Tensor dx_of_fixed_statistics() const {
    const NormReference& right = truth_->reference();
    const std::vector<double> weights = inputs_.weight.to_vector<double>();
    std::vector<double> dx(static_cast<size_t>(inputs_.x.numel()));
    right.sets().for_each([&](size_t element, size_t set, size_t weight) {
      dx[element] = static_cast<double>(right.dz(element, set, weight) * weights[weight] * right.rstd(set));
    });
    return in_float64(dx, inputs_.x.sizes());
  }

  /// The names of faults in the formula that this output is like: at a twentieth of the distance that it has from the
  /// truth.
  [[nodiscard]] std::vector<std::string> like_other_formula(const Tensor& output) const {
    NormReferenceInputs sample = inputs_;
    sample.spec.correction = 1 - sample.spec.correction;
    NormReferenceInputs outside = inputs_;
    const NormReference& right = truth_->reference();
    for (size_t set = 0; set < static_cast<size_t>(right.sets().sets()); ++set) {
      outside.fixed_mean.push_back(right.mean(set));
      outside.fixed_rstd.push_back(1 / (std::sqrt(right.var(set)) + static_cast<long double>(outside.spec.eps)));
    }
    const std::vector<double> found = output.to_vector<double>();
    const auto distance_from = [&](const NormReference& formula) {
      const std::vector<double> y = formula.all(&NormReference::y);
      double far = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double distance = std::abs(y[i] - found[i]);
        far = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(far, distance);
      }
      return far;
    };
    const double far = distance_from(right);
    std::vector<std::string> names;
    if (distance_from(NormReference(sample)) < far / 20) {
      names.emplace_back("the variance is that over n - 1");
    }
    if (distance_from(NormReference(outside)) < far / 20) {
      names.emplace_back("eps stands outside the root");
    }
    return names;
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
    const int64_t groups_before = norm.spec(norm.sizes.size()).groups;
    norm.sizes[1] = norm.sizes[1] / groups_before * groups;
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

std::vector<std::pair<std::string, std::string>> case_descriptions() {
  std::vector<std::pair<std::string, std::string>> result;
  for (const lab::audit::Case& one : lab::audit::all_cases()) {
    result.emplace_back(one.name, one.description);
  }
  return result;
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
      .def("dx_of_fixed_statistics", &ConformanceCase::dx_of_fixed_statistics)
      .def("like_other_formula", &ConformanceCase::like_other_formula, nb::arg("output"))
      .def("errors", &ConformanceCase::errors, nb::arg("output"), nb::arg("dx"), nb::arg("dweight"),
           nb::arg("dbias") = nb::none(),
           "The worst error of each result, relative to what rounding is relative to (lab/audit/accuracy.h).");
  m.def("_conformance_cases", &cases_of, nb::arg("norm"), nb::arg("dtype"), nb::arg("cases"), nb::arg("num_groups"),
        Released());
  m.def("_conformance_case_names", &case_descriptions);
}

}  // namespace norma::python
