#include "python/bindings/bindings.h"

#include "cli/program.h"
#include "lab/check_norm/check_norm.h"
#include "train/interrupt.h"
#include "train/output.h"

#include <cstdio>

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

int run_command(const std::vector<std::string>& words, bool in_python) {
  const std::optional<PrintToPython> print = in_python ? std::optional<PrintToPython>(std::in_place) : std::nullopt;
  const nb::gil_scoped_release released;
  if (!in_python) {
    return cli::run_program(words);
  }
  const InCommand in_command;
  // The command has a guard of its own where work begins; Ctrl-C before that ends it there.
  const train::InterruptGuard guard;
  const int code = cli::run_program(words);
  return train::interrupted() ? 128 + train::interrupting_signal() : code;
}

}  // namespace

void add_lab(nb::module_& m) {
  m.def("_run_command", &run_command, nb::arg("words"), nb::arg("in_python"));
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
      .def("__repr__", [](const lab::NormCheckReport& report) { return report.norm + ":\n" + lab::to_text(report); })
      .def("__bool__", &lab::NormCheckReport::passed);
  m.def(
      "check_norm",
      [](const std::string& norm, bool quick, const std::string& like) {
        return lab::check_norm(norm, {.quick = quick, .like = like});
      },
      nb::arg("norm"), nb::kw_only(), nb::arg("quick") = false, nb::arg("like") = "", Released(), doc("check_norm"));
}

}  // namespace norma::python
