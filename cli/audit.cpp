#include "lab/judge/audit.h"
#include "cli/command.h"
#include "cli/options.h"
#include "lab/judge/norms.h"
#include "session/interrupt.h"
#include "session/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace norma::cli {

namespace {

struct State {
  lab::judge::AuditOptions audit;
  RunOptions running;
  std::string output;
};

int run(const State& state) {
  state.running.apply("audit");
  lab::judge::AuditOptions options = state.audit;
  lab::judge::check_options(options);
  const std::filesystem::path folder = state.output.empty() ? new_run_folder("audit") : state.output;
  const train::FolderLock lock("audit", folder,
                               {"results.json", "results.csv", "costs.csv", "convolutions.csv", "table.txt"});
  if (!state.running.quiet) {
    options.progress = [](const std::string& text) { train::say("{}\n", text); };
  }
  const train::InterruptGuard guard;
  const lab::judge::Audit audit = lab::judge::run_audit(options);
  lab::judge::write_report(audit, lock);
  train::say("\n{}\n{} measurements in {:.0f} s; all of them: {}\n", lab::judge::to_table(audit),
             audit.measurements.size() + audit.layers.size() + audit.steps.size(), audit.seconds,
             (folder / "results.json").string());
  if (!audit.complete) {
    train::say("interrupted\n");
    return interrupted_code();
  }
  return kSuccess;
}

/// The cases and their descriptions, for the end of the help.
std::string describe_cases() {
  std::string text = "\n\nCases:\n";
  for (const lab::judge::Case& c : lab::judge::all_cases()) {
    text += fmt::format("  {:<18}{}\n", c.name, c.description);
  }
  return text;
}

}  // namespace

Command add_audit(CLI::App& program, const std::string& command_line) {
  CLI::App& app = add_subcommand(program, "audit", describe_cases());
  auto state = std::make_shared<State>();
  state->audit.command = command_line;
  const auto add_list = [&](const std::string& name, std::vector<std::string>& list,
                            const std::vector<std::string>& choices, const std::string& description = "") {
    add_names(app, name, list, "all", choices,
              description.empty() ? fmt::format("{}", fmt::join(choices, ", ")) : description);
  };
  std::vector<std::string> norms = lab::judge::norm_names();
  add_list("--norm,--norms", state->audit.norms, norms, fmt::format("{}; group:G", fmt::join(norms, ", ")));
  add_list("--statistics", state->audit.statistics, {"stable", "welford", "two_pass", "compensated", "sum_of_squares"});
  add_list("--dtype,--dtypes", state->audit.dtypes, {"float32", "float64", "bfloat16", "float16"});
  add_list("--case,--cases", state->audit.cases, lab::judge::case_names(), "kinds of input; they are listed below");
  add_switch(app, "--convolutions", state->audit.convolutions,
             "3x3 convolutions and training steps by each implementation; no norms but those of --norms",
             {.heading = kMeasured});
  add_switch(app, "--quick", state->audit.quick,
             "one memory layout, smaller published cases, fewer timings, one training step", {.heading = kMeasured});
  add_path(app, "--output", state->output, "folder for the results",
           {.value = "FOLDER", .otherwise = "runs/audit-<date>-<time>", .heading = "Running"});
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
