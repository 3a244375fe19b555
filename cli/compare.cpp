#include "cli/command.h"
#include "cli/compare_axes.h"
#include "cli/compare_checks.h"
#include "cli/compare_folder.h"
#include "cli/options.h"
#include "cli/plugins.h"
#include "cli/processes.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/parallel.h"
#include "core/parse_number.h"
#include "core/quoting.h"
#include "lab/compare/budget.h"
#include "lab/compare/comparison.h"
#include "lab/compare/deal.h"
#include "lab/compare/timing.h"
#include "lab/compare/tune.h"
#include "lab/report/report.h"
#include "nn/plugin.h"
#include "session/environment.h"
#include "session/folder_lock.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/agreement.h"
#include "train/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace norma::cli {

namespace {

struct State {
  RecipeOptions recipe{recipe_of_comparisons()};
  GridAxes axes;
  RunOptions running;
  std::vector<std::string> models = {"resnet50", "convnext_atto"};
  std::vector<std::string> norms = {"batch", "layer2d", "group"};
  std::vector<uint64_t> seeds = {0};
  int64_t timing_rounds = lab::ComparisonOptions{}.timing_rounds;
  bool telemetry = true;
  lab::DynamicsParts dynamics;
  std::string output;
  std::string resume;
  lab::PartOf part;
  double budget = 0;  // seconds
  double checkpoint_seconds = lab::ComparisonOptions{}.checkpoint_seconds;
  bool quick = false;
  std::string study;
  bool tune_lr = false;
  std::string command_line;
  std::vector<Option> grid;  // models, norms and seeds; the others leave their axes empty
  std::optional<Option> models_option, norms_option, seeds_option, scaling_option, telemetry_option, dynamics_option,
      rounds, epochs, images, test_images;
  lab::LrScaling lr_scaling = lab::LrScaling::none;
  std::shared_ptr<parallel::ProcessGroup> group = parallel::make_single_group();
};

/// Applies --study to the options that were not given.
void make_study(const State& state, double budget, lab::ComparisonOptions& options) {
  if (!state.models_option->given()) {
    options.models.clear();
  }
  if (!state.norms_option->given()) {
    options.norms.clear();
  }
  if (!state.seeds_option->given()) {
    options.seeds.clear();
  }
  const lab::Study study = lab::study_named(state.study);
  if (budget > 0 && !state.test_images->given()) {
    options.recipe.test_images = study.budget_test_images;
  }
  lab::apply_study(study, options);
  if (state.scaling_option->given()) {
    options.lr_scaling = state.lr_scaling;
  }
}

/// Applies --quick to the options that were not given: small networks, and as many images as give a first page in about
/// three minutes on any machine.
void make_quick(const State& state, lab::ComparisonOptions& options, double& budget) {
  constexpr double kBudget = 165;  // seconds
  if (!state.models_option->given()) {
    options.models = {"resnet18", "convnext_atto"};
  }
  if (options.batch_sizes.empty()) {
    options.batch_sizes = {64};
  }
  if (!state.test_images->given()) {
    options.recipe.test_images = 1000;
  }
  if (budget == 0 && !state.epochs->given() && !state.images->given()) {
    budget = kBudget;
  }
}

/// Chooses the length of the runs. Returns the expected seconds of each.
std::vector<double> fit_into(double budget, double spent, bool firm, lab::Comparison& comparison) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<lab::RunCost> costs = lab::measure_runs(comparison);
  spent += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const lab::BudgetPlan plan = lab::plan_budget(comparison, costs, {.budget = budget, .spent = spent, .firm = firm});
  train::say("budget of {}: {}\n", lab::duration_text(budget), lab::describe_plan(comparison, plan));
  lab::apply_plan(comparison, plan, budget);
  return plan.cells;
}

/// The threads of this command.
std::string threads_text(const State& state) {
  train::Environment here;
  here.threads = num_threads();
  here.processes = state.group->size();
  return train::threads_text(here);
}

bool any_given(const std::vector<Option>& options) {
  return std::any_of(options.begin(), options.end(), [](const Option& option) { return option.given(); });
}

/// Takes as many threads as at the beginning, and says where plug-ins have changed since. Throws Error for a norm that
/// is not there, and for another device or number of processes.
void take_environment(const State& state, const lab::Comparison& comparison) {
  for (const lab::Cell& cell : comparison.cells) {
    check_norm_is_loaded("compare", cell.norm, comparison.environment.plugins, "resume", state.resume);
  }
  check_same_device(comparison);
  check_same_processes(comparison, state.group->size());
  take_convolutions(state.running, comparison);
  if (const auto& before = comparison.environment.plugins;
      !before.empty() && train::plugins_json(before) != train::plugins_json(nn::loaded_plugins())) {
    train::say("changed on resuming, so that runs may differ: plug-ins {} → {}\n", train::plugins_text(before),
               train::plugins_text(nn::loaded_plugins()));
  }
  take_threads(state.running, comparison);
}

bool any_in_state(const lab::Comparison& comparison, std::initializer_list<lab::CellState> states) {
  return std::any_of(comparison.cells.begin(), comparison.cells.end(), [&](const lab::Cell& cell) {
    return std::find(states.begin(), states.end(), cell.state) != states.end();
  });
}

/// "6 runs", "part 2 of 3: 2 of 6 runs". `dealt` are the parts of the cells of a comparison that begins.
std::string runs_text(const lab::Comparison& comparison, const lab::PartOf& part, const std::vector<int64_t>& dealt) {
  const size_t all = comparison.cells.size();
  const std::string text = fmt::format("{} {}", all, all == 1 ? "run" : "runs");
  if (part.count == 0 && comparison.part_count == 0) {
    return text;
  }
  const bool divided = comparison.part_count > 0;
  const auto here =
      divided ? std::ranges::count_if(comparison.cells, lab::is_here) : std::ranges::count(dealt, part.number);
  return fmt::format("part {} of {}: {} of {}", divided ? comparison.parts.front().number : part.number,
                     divided ? comparison.part_count : part.count, here, text);
}

void print_precision_notes(const lab::Comparison& comparison) {
  std::set<std::string> seen;
  for (const lab::Cell& cell : comparison.cells) {
    if (seen.insert(cell.precision).second) {
      print_precision_note(train::precision_of(lab::recipe_of(comparison.recipe, cell)));
    }
  }
}

/// A comparison that is about to run, and what only the command knows of it.
struct Begun {
  lab::Comparison comparison;
  lab::ComparisonOptions options;
  std::optional<train::FolderLock> lock;
  bool goes_on = false;
};

/// Goes on with the comparison in the folder of --resume.
void resume(const State& state, Begun& begun) {
  check(!state.recipe.any() && !state.axes.any() && !any_given(state.grid) && state.budget == 0 && !state.quick &&
            !state.tune_lr && state.study.empty() && !state.scaling_option->given() && state.part.count == 0,
        "resume", "models, norms, seeds and recipe are those of the beginning: leave these options out");
  begun.options.output = state.resume;
  if (train::path_exists("resume", begun.options.output / "results.json")) {
    begun.lock.emplace("compare", begun.options.output);  // taken before reading, since another process could add
                                                          // results that would be lost
  }
  begun.comparison = comparison_in(begun.options.output);
  take_environment(state, begun.comparison);
  if (state.rounds->given()) {
    begun.comparison.timing_rounds = state.timing_rounds;
  }
  begun.goes_on = true;
}

/// Plans the comparison, or finds the one in the folder of --output. `budget` becomes 0 for one that goes on.
void plan(const State& state, Begun& begun, double& budget) {
  lab::ComparisonOptions& options = begun.options;
  if (!state.study.empty()) {
    make_study(state, budget, options);
  }
  if (state.quick) {
    make_quick(state, options, budget);
  }
  begun.comparison = lab::plan_comparison(options);
  begun.comparison.environment.processes = state.group->size();
  for (const std::string& text : lab::without_effect(begun.comparison, state.recipe.typed())) {
    train::warn("compare", "{}", text);
  }
  if (options.output.empty()) {
    options.output = new_run_folder("compare");
  }
  check(state.part.count == 0 || budget == 0, "compare",
        "part: expected runs of one length in all parts, by --images or --epochs, got a budget of time");
  check(state.group->size() == 1 || budget == 0, "compare",
        "procs: expected --images or --epochs beside it, since one process alone cannot measure what fits into a "
        "budget of time");
  if (std::optional<lab::Comparison> there =
          begun_before(begun.comparison, state.part, budget, options.output, begun.lock)) {
    begun.comparison = std::move(*there);
    take_environment(state, begun.comparison);
    budget = 0;
    begun.goes_on = true;
  } else {
    check_free(options.output, begun.comparison);
  }
}

/// All that comes before the first step, and finds mistakes. The first of several processes does it.
void begin(const State& state, Begun& begun) {
  const auto start = std::chrono::steady_clock::now();
  lab::Comparison& comparison = begun.comparison;
  lab::ComparisonOptions& options = begun.options;
  double budget = state.budget;
  if (state.resume.empty()) {
    plan(state, begun, budget);
  } else {
    resume(state, begun);
  }
  check_each_has_images(comparison, state.group->size());
  if (begun.goes_on) {
    if (!state.telemetry_option->given()) {
      options.telemetry = comparison.telemetry;
    }
    comparison.telemetry = options.telemetry;
    if (!state.dynamics_option->given()) {
      options.dynamics = comparison.dynamics;
    }
    comparison.dynamics = options.dynamics;
  }
  check_dynamics(options, budget);
  print_precision_notes(comparison);
  const bool divides = !begun.goes_on && state.part.count > 0;
  const std::vector<int64_t> dealt =
      divides ? lab::deal(comparison, state.part.count) : std::vector<int64_t>(comparison.cells.size(), 0);
  lab::rehearse_comparison(comparison);  // before a word is said, so that a mistake is one line
  train::say("{} on {} at {}x{}, {}; the report grows in {}\n", runs_text(comparison, state.part, dealt),
             lab::values_of(comparison, "dataset"), comparison.recipe.image_size, comparison.recipe.image_size,
             threads_text(state), options.output.string());
  if (divides) {  // only now: all parts find the same mistakes
    lab::take_part(comparison, state.part, dealt);
  }
  if (budget > 0) {
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    options.expected_seconds = fit_into(budget, spent, /* firm= */ state.budget > 0, comparison);
  }
  if (!begun.lock) {  // only now, so that a mistake leaves no folder
    train::make_output_folder("compare", options.output);
    begun.lock.emplace("compare", options.output);
    check_free(options.output, comparison);  // another process may have written since
  }
  options.lock = &*begun.lock;
}

/// Gives all processes what the first one has begun.
void share(const State& state, Begun& begun) {
  parallel::ProcessGroup& group = *state.group;
  if (group.size() == 1) {
    return;
  }
  const std::string json = train::text_of_first(group, group.is_first() ? lab::to_json(begun.comparison) : "");
  begun.options.output = train::text_of_first(group, begun.options.output.string());
  begun.goes_on = train::of_first(group, begun.goes_on);
  if (!group.is_first()) {
    begun.comparison = lab::comparison_from_json(json);
    begun.options.telemetry = begun.comparison.telemetry;
    begun.options.dynamics = begun.comparison.dynamics;
    if (begun.goes_on) {
      take_convolutions(state.running, begun.comparison);
      take_threads(state.running, begun.comparison);
    }
  }
}

/// Prints the results. Returns the exit code.
int report(const State& state, const Begun& begun) {
  const lab::Comparison& comparison = begun.comparison;
  train::say("\n{}\nreport: {}\n", lab::to_table(comparison), train::shown(begun.options.output / "report.html"));
  if (any_in_state(comparison, {lab::CellState::interrupted, lab::CellState::pending}) ||
      !lab::timing_is_complete(comparison) || !lab::tuning_is_complete(comparison)) {
    const int64_t processes = state.group->size();
    train::say("interrupted; go on with: {} compare --resume {}{}{}\n", program_name(),
               shell_word(begun.options.output.string()), processes > 1 ? fmt::format(" --procs {}", processes) : "",
               state.running.plugin_words());
    return interrupted_code();
  }
  return any_in_state(comparison, {lab::CellState::failed}) ? kFailure : kSuccess;
}

int run_alone_or_together(const State& state) {
  state.running.apply("compare");
  Begun begun{.comparison = {},
              .options = {.recipe = state.recipe.applied_to(state.recipe.defaults()),
                          .models = state.models,
                          .norms = state.norms,
                          .seeds = state.seeds,
                          .batch_sizes = state.axes.batch_sizes,
                          .lrs = state.axes.lrs,
                          .precisions = state.axes.precisions,
                          .formats = state.axes.formats,
                          .datasets = state.axes.datasets,
                          .options = state.axes.options,
                          .lr_scaling = state.lr_scaling,
                          .timing_rounds = state.timing_rounds,
                          .telemetry = state.telemetry,
                          .dynamics = state.dynamics,
                          .tune_lr = state.tune_lr,
                          .output = state.output,
                          .command = state.command_line,
                          .workers = static_cast<int>(state.running.workers),
                          .log_interval = state.running.log_interval,
                          .checkpoint_seconds = state.checkpoint_seconds,
                          .quiet = state.running.quiet,
                          .group = state.group}};
  train::do_in_first(*state.group, [&] { begin(state, begun); });
  share(state, begun);
  const train::InterruptGuard guard;  // from here on; before, a signal may end the command, which only reads
  try {
    lab::run_comparison(begun.comparison, begun.options);
  } catch (const Error&) {
    if (any_in_state(begun.comparison, {lab::CellState::finished, lab::CellState::failed})) {
      train::say("\n{}", lab::to_table(begun.comparison));  // a full disk must not lose the results
    }
    throw;
  }
  // The first process alone knows what was timed.
  const std::string code = fmt::format("{}", state.group->is_first() ? report(state, begun) : kSuccess);
  return static_cast<int>(parse_number<int64_t>(train::text_of_first(*state.group, code)).value_or(kFailure));
}

int run(State& state) {
  return run_in_processes("compare", state.running, [&state](const std::shared_ptr<parallel::ProcessGroup>& group) {
    state.group = group;
    return run_alone_or_together(state);
  });
}

}  // namespace

Command add_compare(CLI::App& program, const std::string& command_line) {
  CLI::App& app = add_subcommand(
      program, "compare", "Train a grid of models, norms and more, and write a report",
      "Examples:\n"
      "  norma compare\n"
      "  norma compare --quick\n"
      "  norma compare --models resnet18 --norms batch,group:8,group/16,layer2d --seeds 0,1,2\n"
      "  norma compare --models convnext_atto --norms 'layer2d,layer2d[eps=1e-3]' --epochs 2\n"
      "  norma compare --study batch-size --budget 15m\n"
      "  norma compare --models resnet18 --norms batch,group --batch-sizes 2,8,32 --precisions float32,amp_bfloat16\n"
      "  norma compare --seeds 0,1,2 --part 2/4 --output runs/part-2\n"
      "  norma compare --norms sync_batch,group --procs 4\n"
      "Options that take a LIST are axes of a grid: there is a run for each combination of their values.\n"
      "All runs see the same images in the same order. The output folder gets report.html (answer, table, charts),\n"
      "report.md, results.csv and results.json, anew after every run. For the tax the norms of a model take turns, "
      "step by step,\n"
      "in rounds spread over the whole comparison. Ctrl-C keeps what is done, and --resume FOLDER does the rest, as "
      "does\n"
      "the same command with the same --output.");
  auto state = std::make_shared<State>();
  state->command_line = command_line;
  add_axis(app, "--model,--models", "model", state->models, "resnet50,convnext_atto");
  add_axis(app, "--norm,--norms", "norm", state->norms, "batch,layer2d,group");
  add_values(app, "--seed,--seeds", train::ranges::kSeed, state->seeds,
             "of start values and image order; several show the spread")
      .type_name("LIST")
      .default_str("0")
      .group("Network");
  add_value<int64_t>(
      app, "--timing-rounds", train::ranges::kStepsOrNone,
      [state = state.get()](int64_t n) { state->timing_rounds = n; },
      "training steps in which the norms of a model take turns: they show the tax")
      .type_name("N")
      .default_str(fmt::format("{}", state->timing_rounds))
      .group("Network");
  state->grid = {option_of(app, "--models"), option_of(app, "--norms"), option_of(app, "--seeds")};
  add_text(
      app, "--budget", "a time as 90s, 15m or 2h",
      [state = state.get()](const std::string& text) {
        state->budget = lab::parse_duration(text);
        check(state->budget > 0, "compare", "--budget: expected a time as 90s, 15m or 2h, got {}", excerpt(text));
      },
      "make the runs as long as lets all of it end within this time, instead of --images")
      .type_name("TIME")
      .group("Images");
  add_switch(app, "--tune-lr", state->tune_lr,
             "first try a quarter, half, twice and four times the learning rate for each norm in short runs")
      .group("Optimisation");
  std::string questions =
      "a grid that answers a question, where nothing else is said; a file of your own (docs/studies.md), or one of";
  for (const lab::Study& study : lab::studies()) {
    questions += fmt::format("{} {} ({})", &study == lab::studies().data() ? "" : ",", study.name, study.question);
  }
  add_text(
      app, "--study", "a name",
      [state = state.get()](const std::string& name) {
        lab::study_named(name);  // an unknown name, or a file that is none, is an error of the command line
        state->study = name;
      },
      questions)
      .type_name("NAME|FILE.toml")
      .group("Network");
  add_text(
      app, "--lr-scaling", "a name",
      [state = state.get()](const std::string& name) { state->lr_scaling = lab::lr_scaling_from_string(name); },
      "how the learning rate, which is for batches of 128, follows the batch size: none, sqrt, linear")
      .type_name("NAME")
      .default_str("none")
      .group("Optimisation");
  add_switch(app, "--quick", state->quick,
             "a first page in about three minutes: --budget 165s, resnet18 and convnext_atto, batches of 64, 1000 test "
             "images, where nothing else is said")
      .group("Network");
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::network});
  add_axes(app, state->axes);
  state->recipe.add(app,
                    {Part::data, Part::shape, Part::length, Part::augmentation, Part::update, Part::steps, Part::start},
                    axis_options());
  add_axis(app, "--precision,--precisions", "precision", state->axes.precisions);
  state->recipe.add(app, {Part::precision}, {"precision"});
  exclude(app, {"--budget", "--epochs"});
  exclude(app, {"--budget", "--images"});
  exclude(app, {"--study", "--quick"});
  state->models_option = option_of(app, "--models");
  state->norms_option = option_of(app, "--norms");
  state->seeds_option = option_of(app, "--seeds");
  state->scaling_option = option_of(app, "--lr-scaling");
  state->rounds = option_of(app, "--timing-rounds");
  state->epochs = option_of(app, "--epochs");
  state->images = option_of(app, "--images");
  state->test_images = option_of(app, "--test-images");
  add_path(app, "--output", state->output, "folder for the report")
      .type_name("FOLDER")
      .default_str("runs/compare-<date>-<time>")
      .group("Running");
  add_path(app, "--resume", state->resume, "do what is left of the comparison in this folder")
      .type_name("FOLDER")
      .group("Running");
  exclude(app, {"--output", "--resume"});
  add_text(
      app, "--part", "K/N, as 2/4",
      [state = state.get()](const std::string& text) { state->part = lab::parse_part(text); },
      "make the K-th of N shares of the runs, which take about equally long; norma report puts the folders together")
      .type_name("K/N")
      .group("Running");
  add_text(
      app, "--checkpoint-interval", "a time as 90s, 15m or 2h",
      [state = state.get()](const std::string& text) {
        state->checkpoint_seconds = lab::parse_duration(text);
        check(state->checkpoint_seconds > 0, "compare",
              "--checkpoint-interval: expected a time as 90s, 15m or 2h, got {}", excerpt(text));
      },
      "time between two checkpoints of a run, from which it goes on when it was cut")
      .type_name("TIME")
      .default_str("60s")
      .group("Running");
  add_switch(app, "--telemetry,!--no-telemetry", state->telemetry,
             "record curves, where time and memory go, copies and the numbers in each layer; evaluate each epoch [on]")
      .group("Running");
  state->telemetry_option = option_of(app, "--telemetry");
  add_text(
      app, "--dynamics", "a list of names",
      [state = state.get()](const std::string& text) { state->dynamics = lab::parse_dynamics("compare", text); },
      dynamics_help())
      .type_name("LIST")
      .group("Running");
  state->dynamics_option = option_of(app, "--dynamics");
  state->running.add_plugin(app);
  state->running.add(
      app, {"threads", "device", "conv", "workers", "log-interval", "procs", "timeout", "verbose-ranks", "quiet"});
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
