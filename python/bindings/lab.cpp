#include "python/bindings/bindings.h"

#include "cli/program.h"
#include "core/device.h"
#include "core/parallel.h"
#include "lab/judge/check_norm.h"
#include "session/interrupt.h"
#include "session/output.h"

#include <csignal>
#include <cstdio>
#include <map>

namespace norma::python {

namespace {

/// Prints what Norma says to sys.stdout and sys.stderr as they are in Python, which may be a notebook.
class PrintToPython {
 public:
  PrintToPython() {
    train::redirect([](std::FILE* out, std::string_view text) {
      const nb::gil_scoped_acquire gil;
      try {
        const nb::object stream = nb::module_::import_("sys").attr(out == stderr ? "stderr" : "stdout");
        stream.attr("write")(nb::str(text.data(), text.size()));
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
int in_command(F command) {
  const PrintToPython print;
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
  return in_command([&] { return cli::compare(options, command); });
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

}  // namespace norma::python
