#include "python/bindings/bindings.h"

#include "cli/program.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "lab/judge/check_norm.h"
#include "lab/judge/norms.h"
#include "session/interrupt.h"
#include "session/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>

namespace norma::python {

namespace {

/// Prints what Norma says to sys.stdout and sys.stderr as they are in Python, which may be a notebook; of what is
/// `quiet` the warnings alone.
class PrintToPython {
 public:
  explicit PrintToPython(bool quiet) {
    train::redirect([quiet](std::FILE* out, std::string_view text) {
      if (quiet && out == stdout) {
        return;
      }
      const nb::gil_scoped_acquire gil;
      try {
        const nb::object stream = nb::module_::import_("sys").attr(out == stderr ? "stderr" : "stdout");
        stream.attr("write")(decoded(text));
        stream.attr("flush")();
      } catch (const std::exception&) {
        // A closed notebook must not cost the work of hours.
      }
    });
  }
  ~PrintToPython() { train::redirect(nullptr); }
  PrintToPython(const PrintToPython&) = delete;
  PrintToPython& operator=(const PrintToPython&) = delete;
};

/// Options of a command (--threads, --device, --conv) are set for the whole process. They must not stay for what Python
/// does next, so this sets them back. Where NORMA_DEVICE or NORMA_CONV is wrong there is nothing to go back to; that is
/// an error of the op that needs it, and of no command whose options say otherwise.
class SetBack {
 public:
  SetBack() {
    try_to([&] { device_.emplace(default_device()); });
    try_to([&] { convolutions_.emplace(conv2d_implementation(kCpu), kCpu); });
  }
  ~SetBack() {
    try_to([&] { set_num_threads(threads_); });  // OMP_NUM_THREADS may be more than may be set
  }
  SetBack(const SetBack&) = delete;
  SetBack& operator=(const SetBack&) = delete;

 private:
  template <class F>
  static void try_to(F f) {
    try {
      f();
    } catch (const Error&) {
      return;
    }
  }

  int threads_ = num_threads();
  std::optional<DefaultDeviceGuard> device_;
  std::optional<Conv2dImplementationGuard> convolutions_;
};

/// Calls a command, and returns its exit code.
template <class F>
int in_command(F command, bool quiet = false) {
  const PrintToPython print(quiet);
  const nb::gil_scoped_release released;
  const InCommand in_command;
  const SetBack set_back;
  // The command has a guard of its own where work begins; Ctrl-C before that ends it there.
  const train::InterruptGuard guard;
  const int code = command();
  return train::interrupted() ? 128 + train::interrupting_signal() : code;
}

int run_command(const std::vector<std::string>& words) {
  return in_command([&] { return cli::run_command(words); });
}

int compare(const std::vector<cli::NamedWords>& options, const std::string& command) {
  // The results are returned, so that nothing need be printed.
  const bool quiet = std::ranges::count(options, cli::NamedWords{"quiet", {"true"}}) > 0;
  return in_command([&] { return cli::compare(options, command); }, quiet);
}

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

void add_lab(nb::module_& m) {
  m.def("_run_command", &run_command, nb::arg("words"));
  m.def("_compare", &compare, nb::arg("options"), nb::arg("command"));
  m.def("_run_program", &cli::run_program, nb::arg("words"), Released());
  nb::class_<lab::NormCheckReport>(m, "NormCheckReport", doc("NormCheckReport"))
      .def_ro("norm", &lab::NormCheckReport::norm)
      .def_prop_ro("passed", &lab::NormCheckReport::passed, "True iff no check has failed.")
      .def_prop_ro(
          "failures",
          [](const lab::NormCheckReport& report) {
            std::vector<std::pair<std::string, std::string>> result;
            for (const lab::NormCheck& check : report.checks) {
              if (check.outcome == lab::CheckOutcome::failed) {
                result.emplace_back(check.name, check.text);
              }
            }
            return result;
          },
          "Name and text of each check that failed.")
      .def_prop_ro(
          "hard_inputs",
          [](const lab::NormCheckReport& report) {
            std::map<std::string, std::map<std::string, double>> result;
            for (const lab::HardInput& input : report.hard_inputs) {
              result[input.name] = input.steps;
            }
            return result;
          },
          "By the name of audit's input: the worst error of each result, in steps of float32.")
      .def("__repr__", [](const lab::NormCheckReport& report) { return report.norm + ":\n" + lab::to_text(report); })
      .def("__bool__", &lab::NormCheckReport::passed);
  m.def(
      "check_norm",
      [](const std::string& norm, bool quick, const std::string& like) {
        lab::NormCheckReport report;
        int signal = 0;
        {
          const nb::gil_scoped_release released;
          const train::InterruptGuard guard(train::AfterSignal::no_result);
          report = lab::check_norm(norm, {.quick = quick, .like = like});
          signal = train::interrupting_signal();
        }
        if (signal != 0) {
          // Python's handler gets the signal; without one, the system's acts. A report of a part would say nothing.
          std::raise(signal);
          if (PyErr_CheckSignals() == 0) {
            PyErr_SetNone(PyExc_KeyboardInterrupt);
          }
          throw nb::python_error();
        }
        return report;
      },
      nb::arg("norm"), nb::kw_only(), nb::arg("quick") = false, nb::arg("like") = "", doc("check_norm"));
}

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
