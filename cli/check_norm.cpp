#include "lab/judge/check_norm.h"
#include "cli/command.h"
#include "cli/options.h"
#include "nn/norm/factory.h"
#include "session/interrupt.h"
#include "session/output.h"

namespace norma::cli {

namespace {

struct State {
  std::vector<std::string> norms;
  std::string like;
  bool quick = false;
  RunOptions running;
};

int run(const State& state) {
  state.running.apply("check-norm");
  lab::CheckNormOptions options{.quick = state.quick, .like = state.like};
  if (!state.running.quiet) {
    options.progress = [](const std::string& name) { train::say("{} …\n", name); };
  }
  for (const std::string& norm : state.norms) {
    nn::parse_norm(norm);
  }
  if (!state.like.empty()) {
    nn::parse_norm(state.like);
  }
  const train::InterruptGuard guard(train::AfterSignal::figures_of_part);
  bool passed = true;
  for (const std::string& norm : state.norms) {
    const lab::NormCheckReport report = lab::check_norm(norm, options);
    const bool interrupted = train::interrupted();
    train::say("\n{}:\n{}{}\n", norm, lab::to_text(report),
               interrupted       ? "interrupted"
               : report.passed() ? "nothing is wrong"
                                 : "something is wrong: see FAILED");
    if (interrupted) {
      return interrupted_code();
    }
    passed = passed && report.passed();
  }
  return passed ? kSuccess : kFailure;
}

}  // namespace

Command add_check_norm(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "check-norm");
  auto state = std::make_shared<State>();
  cli::add_list(app, "--norm,--norms", "a norm", state->norms, "norm specs",
                {.value = "LIST", .choices = nn::norm_names(), .required = true});
  add_text(app, "--like", "a norm", state->like, "a norm spec: also check that the norms give the same as this one",
           {.value = "SPEC", .choices = nn::norm_names()});
  add_switch(app, "--quick", state->quick, "without networks and speed", {.heading = "Running"});
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
