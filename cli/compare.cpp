#include "base/lists.h"
#include "cli/program.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "base/quoting.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "cli/run_files.h"
#include "core/parallel.h"
#include "lab/compare/comparison.h"
#include "lab/compare/request.h"
#include "lab/compare/timing.h"
#include "nn/plugin.h"
#include "ops/conv/conv.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>

namespace norma::cli {

namespace {

struct State {
  lab::ComparisonRequest request;
  RunOptions running;
};

/// Computes with as many threads as at the beginning, unless the options say how many.
void take_threads(const RunOptions& running, const lab::Comparison& comparison) {
  const int64_t threads = comparison.environment.threads;
  if (running.threads == 0 && threads > 0 && threads != num_threads()) {
    train::say("{} {}, as at the beginning\n", threads, threads == 1 ? "thread" : "threads");
    set_num_threads(static_cast<int>(threads));
  }
}

/// Computes convolutions as at the beginning. Throws Error where the options ask for the other way. Results of older
/// versions do not say how they began: they go on as the options say.
void take_convolutions(const RunOptions& running, const lab::Comparison& comparison) {
  const std::optional<bool> exact = comparison.environment.exact_convolutions;
  if (!exact) {
    train::say("{} convolutions; the results do not say which they began with\n",
               conv2d_mode() == Conv2dMode::exact ? "exact" : "fast");
    return;
  }
  const char* before = *exact ? "exact" : "fast";
  check(running.conv.empty() || running.conv == before, "resume",
        "conv: the comparison was started with {}, and cannot go on with {}", before, running.conv);
  if (exact != (conv2d_mode() == Conv2dMode::exact)) {
    train::say("{} convolutions, as at the beginning\n", before);
    set_conv2d_implementation(before, kCpu);
  }
}

/// Takes threads and convolutions as at the beginning, and says where plug-ins have changed since. Throws Error for a
/// norm that is not there.
void take_environment(const State& state, const lab::Comparison& comparison) {
  for (const lab::Cell& cell : comparison.cells) {
    check_norms_are_loaded("compare", {cell.norm, lab::recipe_of(comparison.recipe, cell).qk_norm},
                           comparison.environment.plugins, "resume", state.request.resume);
  }
  take_convolutions(state.running, comparison);
  if (const auto& before = comparison.environment.plugins;
      !before.empty() && train::plugins_json(before) != train::plugins_json(nn::loaded_plugins())) {
    train::say("changed on resuming, so that runs may differ: plug-ins {} → {}\n", train::plugins_text(before),
               train::plugins_text(nn::loaded_plugins()));
  }
  take_threads(state.running, comparison);
}

/// Gives all processes what the first one has begun.
void share(const State& state, lab::BegunComparison& begun) {
  parallel::ProcessGroup& group = *state.request.options.group;
  if (group.size() == 1) {
    return;
  }
  const std::string json = train::text_of_first(group, group.is_first() ? lab::to_json(begun.comparison) : "");
  const std::string output = train::text_of_first(group, begun.options.output.string());
  begun.goes_on = train::of_first(group, begun.goes_on);
  if (!group.is_first()) {
    begun.options = state.request.options;
    begun.comparison = lab::comparison_from_json(json);
    begun.options.telemetry = begun.comparison.telemetry;
    begun.options.dynamics = begun.comparison.dynamics;
    if (begun.goes_on) {
      take_convolutions(state.running, begun.comparison);
      take_threads(state.running, begun.comparison);
    }
  }
  begun.options.output = output;
}

/// Prints the results. Returns the exit code.
int report(const State& state, const lab::BegunComparison& begun) {
  const lab::Comparison& comparison = begun.comparison;
  train::say("\n{}\nreport: {}\n", lab::to_table(comparison), train::shown(begun.options.output / "report.html"));
  if (lab::any_in_state(comparison, {lab::CellState::interrupted, lab::CellState::pending}) ||
      !lab::timing_is_complete(comparison) || !lab::tuning_is_complete(comparison)) {
    const int64_t processes = begun.options.group->size();
    train::say("interrupted; go on with: {} compare --resume {}{}{}\n", program_name(),
               shell_word(begun.options.output.string()), processes > 1 ? fmt::format(" --procs {}", processes) : "",
               state.running.plugin_words());
    return interrupted_code();
  }
  return lab::any_in_state(comparison, {lab::CellState::failed}) ? kFailure : kSuccess;
}

int run_alone_or_together(State& state) {
  state.running.apply("compare");
  lab::ComparisonOptions& options = state.request.options;
  options.workers = static_cast<int>(state.running.workers);
  options.log_interval = state.running.log_interval;
  options.quiet = state.running.quiet;
  if (options.output.empty() && state.request.resume.empty() && options.group->is_first()) {
    options.output = new_run_folder("compare");
  }
  lab::BegunComparison begun;
  train::do_in_first(*options.group, [&] {
    const auto take = [&](const lab::Comparison& comparison) { take_environment(state, comparison); };
    lab::begin_comparison(state.request, take, begun);
  });
  share(state, begun);
  const train::InterruptGuard guard;  // from here on; before, a signal may end the command, which only reads
  try {
    lab::run_comparison(begun.comparison, begun.options);
  } catch (const Error&) {
    if (lab::any_in_state(begun.comparison, {lab::CellState::finished, lab::CellState::failed})) {
      train::say("\n{}", lab::to_table(begun.comparison));  // a full disk must not lose the results
    }
    throw;
  }
  // The first process alone knows what was timed.
  const std::string code = fmt::format("{}", options.group->is_first() ? report(state, begun) : kSuccess);
  return static_cast<int>(parse_number<int64_t>(train::text_of_first(*options.group, code)).value_or(kFailure));
}

int run(State& state) {
  lab::check_given_together(lab::option_rows(state.request), state.request);
  return run_in_processes("compare", state.running, [&state](const std::shared_ptr<parallel::ProcessGroup>& group) {
    state.request.options.group = group;
    return run_alone_or_together(state);
  });
}

/// Gives words to the option of this name. It is as if the option were not given where it cannot be turned off.
void give(const std::vector<train::OptionRow>& rows, std::string name, std::vector<std::string> words) {
  std::ranges::replace(name, '_', '-');
  const auto row = std::ranges::find_if(rows, [&](const train::OptionRow& one) { return is_in(one.names, name); });
  if (row == rows.end()) {
    const auto known = mapped(rows, [](const train::OptionRow& one) { return "--" + one.names.back(); });
    fail("compare", "{}", unknown_name("option", "--" + name, known));
  }
  if (row->is_switch() && !row->has_opposite && words == std::vector<std::string>{"false"}) {
    return;
  }
  check(row->is_list || words.size() == 1, "compare", "--{}: expected one value, got {}", name, words.size());
  if (row->is_list) {
    words = split_list(fmt::format("{}", fmt::join(words, ",")));
  }
  if (row->begin) {
    row->begin();
  }
  for (const std::string& word : words) {
    const bool fits = !row->is_switch() || word == "true" || word == "false";
    check(fits && row->take(word), "compare", "--{}: expected {}, got {}", name,
          row->is_switch() ? "true or false" : row->expected, shown(word));
  }
}

}  // namespace

int compare(const std::vector<NamedWords>& options, const std::string& command) {
  const std::unique_lock<std::mutex> lock = be_the_only_command("compare");
  State state;
  state.request.options.command = command;
  std::vector<train::OptionRow> rows = lab::option_rows(state.request);
  std::ranges::move(state.running.rows("compare"), std::back_inserter(rows));
  for (const auto& [name, words] : options) {
    check(name != "procs", "compare",
          "procs: expected the norma command, which mpirun can start, got a call in Python");
    if (name != "plugin") {
      give(rows, name, words);
      continue;
    }
    for (const std::string& file : words) {
      load_plugins({"compare", "--plugin", file});
    }
  }
  return run(state);
}

Command add_compare(CLI::App& program, const std::string& command_line) {
  CLI::App& app = add_subcommand(program, "compare");
  auto state = std::make_shared<State>();
  state->request.options.command = command_line;
  for (const train::OptionRow& row : lab::option_rows(state->request)) {
    cli::add(app, row);
  }
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
