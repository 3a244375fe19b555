#include "lab/compare/request.h"

#include "base/error.h"
#include "base/input_file.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/parallel.h"
#include "lab/bench/spread.h"
#include "lab/compare/timing.h"
#include "lab/report/merged.h"
#include "lab/report/settings.h"
#include "lab/studies/study.h"
#include "lab/telemetry/dynamics_parts.h"
#include "session/environment.h"
#include "train/precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

namespace norma::lab {

namespace {

using train::as_text;
using train::into;
using train::OptionRow;
using train::RecipePart;
using Request = ComparisonRequest;
using Words = std::vector<std::string>;

constexpr const char* kNetwork = "Network";
constexpr const char* kOfImages = "Images";
constexpr const char* kOptimization = "Optimization";
constexpr const char* kRunning = "Running";
constexpr const char* kTime = "a time as 90s, 15m or 2h";

train::Recipe default_recipe() {
  train::Recipe recipe;
  recipe.images = 25600;
  return recipe;
}

/// An option that all runs share.
OptionRow of_recipe(const train::RecipeOption& option, Request& request) {
  OptionRow row = option.row(default_recipe());
  row.begin = [&option, &request] { option.clear(request.value); };
  row.take = [&option, &request](const std::string& word) {
    const bool fits = option.take(request.value, word);
    option.give(request.value, request.options.recipe);
    return fits;
  };
  return row;
}

/// A list of values of an option of the recipe.
OptionRow axis(Words names, const train::RecipeOption& option) {
  OptionRow row = option.row(default_recipe());
  row.names = std::move(names);
  row.value_name = "LIST";
  row.is_list = true;
  row.excludes.clear();
  return row;
}

/// An axis with a member of its own, for texts or numbers.
template <class T>
OptionRow axis(Words names, const char* of, std::vector<T>& values) {
  const train::RecipeOption& option = train::recipe_option(of);
  OptionRow row = axis(std::move(names), option);
  row.begin = [&values] { values.clear(); };
  row.take = [&values, &option](const std::string& word) {
    if constexpr (std::is_same_v<T, std::string>) {
      return into(values.emplace_back())(word);
    } else {
      return into(values.emplace_back(), std::get<train::NumberField<T>>(option.field).range)(word);
    }
  };
  return row;
}

/// An axis of option_axes() that is an option of the recipe.
OptionRow axis(Words names, const train::RecipeOption& option, Words& words) {
  OptionRow row = axis(std::move(names), option);
  row.expected = option.is_text() ? option.expected : "numbers in its range";
  row.begin = [&words] { words.clear(); };
  row.take = [&option, &words](const std::string& word) {
    train::Recipe recipe;
    const bool fits = option.take(recipe, word);
    if (fits) {
      option.check_value(recipe);
      words.push_back(word);
    }
    return fits;
  };
  return row;
}

/// One that comparisons alone have; the first of its values is the default.
OptionRow axis(Words names, const OptionAxis& one, Words& words) {
  const auto take = [&one, &words](const std::string& word) {
    words.push_back(word);
    return is_in(one.words, word);
  };
  return {.names = std::move(names),
          .heading = one.heading,
          .value_name = "LIST",
          .expected = or_list(one.words),
          .help = one.help,
          .take = take,
          .otherwise = one.words.front(),
          .choices = one.words,
          .begin = [&words] { words.clear(); },
          .is_list = true};
}

/// The word for a value, what it must be, and its default.
struct ValueText {
  std::string name;
  std::string expected;
  std::string otherwise = {};
  Words choices = {};
};

/// An option with one value, or a switch.
OptionRow row(const char* name, const char* heading, std::string help, std::function<bool(const std::string&)> take,
              ValueText value = {}, Words excludes = {}) {
  return {.names = {name},
          .heading = heading,
          .value_name = std::move(value.name),
          .expected = std::move(value.expected),
          .help = std::move(help),
          .take = std::move(take),
          .otherwise = std::move(value.otherwise),
          .choices = std::move(value.choices),
          .excludes = std::move(excludes)};
}

OptionRow with_opposite(OptionRow row) {
  row.has_opposite = true;
  return row;
}

OptionRow with_default(OptionRow row, const char* otherwise) {
  row.otherwise = otherwise;
  return row;
}

auto into_seconds(double& seconds) {
  return [&seconds](const std::string& word) {
    seconds = parse_duration(word);
    return seconds > 0;
  };
}

OptionRow study_row(Request& request) {
  std::string help =
      "a grid that answers a question, where nothing else is said; a file of your own (docs/studies.md), or one of";
  Words names;
  for (const Study& study : studies()) {
    help += fmt::format("{} {} ({})", names.empty() ? "" : ",", study.name, study.question);
    names.push_back(study.name);
  }
  return row("study", kNetwork, help, as_text([&](const std::string& name) {
               study_named(name);  // an unknown name, or a file that is none, is an error of the command line
               request.study = name;
             }),
             {.name = "NAME|FILE.toml", .expected = "a name", .choices = names});
}

OptionRow seeds_row(std::vector<uint64_t>& seeds) {
  const Range<uint64_t>& range = train::ranges::kSeed;
  OptionRow seed = row("seed", kNetwork, "of start values and image order; several show the spread",
                       [&](const std::string& word) { return into(seeds.emplace_back(), range)(word); },
                       {.name = "LIST", .expected = to_string(range), .otherwise = "0"});
  seed.names = {"seed", "seeds"};
  seed.begin = [&seeds] { seeds.clear(); };
  seed.is_list = true;
  return seed;
}

/// The models, norms and seeds, and how the grid is run.
std::vector<OptionRow> grid(Request& request) {
  ComparisonOptions& options = request.options;
  const Range<int64_t>& rounds = train::ranges::kStepsOrNone;
  return {with_default(axis({"model", "models"}, "model", options.models), "resnet50,convnext_atto"),
          with_default(axis({"norm", "norms"}, "norm", options.norms), "batch,layer2d,group"),
          seeds_row(options.seeds),
          row("timing-rounds", kNetwork, "training steps in which the norms of a model take turns: they show the tax",
              into(options.timing_rounds, rounds),
              {"N", to_string(rounds), fmt::format("{}", ComparisonOptions{}.timing_rounds)}),
          row("budget", kOfImages, "make the runs as long as lets all of it end within this time, instead of --images",
              into_seconds(request.budget), {"TIME", kTime}, {"epochs", "images"}),
          row("tune-lr", kOptimization,
              "first try a quarter, half, twice and four times the learning rate for each norm in short runs",
              into(options.tune_lr)),
          study_row(request),
          row("lr-scaling", kOptimization,
              "how the learning rate, which is for batches of 128, follows the batch size: none, sqrt, linear",
              as_text([&](const std::string& name) { options.lr_scaling = lr_scaling_from_string(name); }),
              {"NAME", "a name", "none", {"none", "sqrt", "linear"}}),
          row("quick", kNetwork,
              "a first page in about two minutes: --budget 125s, resnet18 and convnext_atto, batches of 64, 1000 test "
              "images, where nothing else is said",
              into(request.quick), {}, {"study"})};
}

OptionRow formats_row(std::vector<MemoryFormat>& formats) {
  const auto take = [&formats](const std::string& word) {
    formats.push_back(word == "contiguous" ? MemoryFormat::contiguous : MemoryFormat::channels_last);
    return word == to_string(formats.back());
  };
  OptionRow format =
      row("format", kOfImages, "order of activations in memory: contiguous is N, C, H, W; channels_last is N, H, W, C",
          take, {"LIST", "contiguous or channels_last", "channels_last", {"contiguous", "channels_last"}});
  format.names = {"format", "formats"};
  format.begin = [&formats] { formats.clear(); };
  format.is_list = true;
  return format;
}

/// The axes beside models, norms, seeds and precisions.
std::vector<OptionRow> further(Request& request) {
  ComparisonOptions& options = request.options;
  const auto take_format = [&formats = options.formats](const std::string& word) {
    formats = {word == "true" ? MemoryFormat::channels_last : MemoryFormat::contiguous};
    return true;
  };
  std::vector<OptionRow> rows{
      axis({"data", "dataset", "datasets"}, "dataset", options.datasets),
      axis({"b", "batch-size", "batch-sizes"}, "batch-size", options.batch_sizes), formats_row(options.formats),
      with_opposite(row("channels-last", kOfImages, "short for --format channels_last", take_format, {}, {"formats"})),
      axis({"lr", "lrs"}, "lr", options.lrs)};
  for (const OptionAxis& one : option_axes()) {
    const std::string name = one.option;
    Words names = name == one.flag ? Words{name} : Words{name, one.flag};
    Words& words = options.options[name];  // an empty list is no axis
    rows.push_back(one.words.empty() ? axis(std::move(names), train::recipe_option(name), words)
                                     : axis(std::move(names), one, words));
  }
  return rows;
}

/// Where the comparison runs, and what it leaves.
std::vector<OptionRow> running(Request& request) {
  ComparisonOptions& options = request.options;
  return {row("output", kRunning, "folder for the report",
              as_text([&](const std::string& folder) { options.output = folder; }),
              {"FOLDER", "a path", "runs/compare-<date>-<time>"}),
          row("resume", kRunning, "do what is left of the comparison in this folder", into(request.resume),
              {"FOLDER", "a path"}, {"output"}),
          row("part", kRunning,
              "make the K-th of N shares of the runs, which take about equally long; norma report puts the folders "
              "together",
              as_text([&](const std::string& text) { request.part = parse_part(text); }), {"K/N", "K/N, as 2/4"}),
          row("checkpoint-interval", kRunning,
              "time between two checkpoints of a run, from which it goes on when it was cut",
              into_seconds(options.checkpoint_seconds), {"TIME", kTime, "60s"}),
          with_opposite(row("telemetry", kRunning,
                            "record curves, where time and memory go, copies and the numbers in each layer; evaluate "
                            "each epoch [on]",
                            into(options.telemetry))),
          row("dynamics", kRunning, dynamics_help(),
              as_text([&](const std::string& text) { options.dynamics = parse_dynamics("compare", text); }),
              {.name = "LIST", .expected = "a list of names", .choices = dynamics_choices()})};
}

/// Applies the study to the options that were not given.
void make_study(const ComparisonRequest& request, ComparisonOptions& options) {
  if (!request.has({"models"})) {
    options.models.clear();
  }
  if (!request.has({"norms"})) {
    options.norms.clear();
  }
  if (!request.has({"seeds"})) {
    options.seeds.clear();
  }
  const Study study = study_named(request.study);
  if (request.budget > 0 && !request.has({"test-images"})) {
    options.recipe.test_images = study.budget_test_images;
  }
  apply_study(study, options);
  if (request.has({"lr-scaling"})) {
    options.lr_scaling = request.options.lr_scaling;
  }
}

/// Applies `quick` to the options that were not given: small networks, and as many images as give a first page in about
/// two minutes on any machine.
void make_quick(const ComparisonRequest& request, ComparisonOptions& options, double& budget) {
  constexpr double kBudget = 125;  // seconds
  if (!request.has({"models"})) {
    options.models = {"resnet18", "convnext_atto"};
  }
  if (options.batch_sizes.empty()) {
    options.batch_sizes = {64};
  }
  if (!request.has({"test-images"})) {
    options.recipe.test_images = 1000;
  }
  if (budget == 0 && !request.has({"epochs", "images"})) {
    budget = kBudget;
  }
}

/// Chooses the length of the runs. Returns the expected seconds of each.
std::vector<double> fit_into(double budget, double spent, bool firm, Comparison& comparison) {
  const bench::Clock::time_point start = bench::Clock::now();
  const std::vector<RunCost> costs = measure_runs(comparison);
  spent += bench::seconds_since(start);
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = budget, .spent = spent, .firm = firm});
  train::say("budget of {}: {}\n", duration_text(budget), describe_plan(comparison, plan));
  apply_plan(comparison, plan, budget);
  return plan.cells;
}

/// Throws Error for an option of some families of networks where no run has one of these.
void check_families(const ComparisonRequest& request, const ComparisonOptions& options) {
  for (const FamilyOption& one : family_options()) {
    if (request.has({one.option->name}) && one.option->items(options.recipe) != one.option->items({})) {
      check_is_taken(one, options.models);
    }
  }
}

void check_each_has_images(const Comparison& comparison, int64_t processes) {
  for (const Cell& cell : comparison.cells) {
    check(cell.batch_size >= processes, "compare",
          "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
          cell.batch_size, processes);
  }
}

/// Throws Error where the dynamics that are wanted cannot be recorded. `budget` in seconds; 0: none.
void check_dynamics(const ComparisonOptions& options, double budget) {
  if (!options.dynamics.any()) {
    return;
  }
  check(options.telemetry, "compare", "dynamics: expected telemetry, which holds them, got --no-telemetry");
  check(options.group->size() == 1, "compare", "dynamics: expected one process, got {}", options.group->size());
  check(!options.dynamics.sharpness || budget == 0, "compare",
        "dynamics: expected --images or --epochs beside sharpness, which takes longer than any budget of time knows");
}

/// The comparison in a folder that it may go on in. Throws Error if there is none, if it was merged from parts, and if
/// runs are left and the file of weights that they start from has changed.
Comparison comparison_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "results.json";
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // ten million steps
  Comparison comparison = comparison_from_json(read_text_file("resume", file, kMaxBytes), "resume: " + file.string());
  check(comparison.parts.size() < 2, "resume", "'{}' was merged from several parts: go on in the folder of each part",
        folder.string());
  const std::string& weights = comparison.recipe.initial_checkpoint;
  const bool done = std::ranges::all_of(comparison.cells, [](const Cell& cell) {  // failed ones are tried again
    return cell.state == CellState::finished || cell.state == CellState::elsewhere;
  });
  check(done || weights.empty() || initial_sha256(weights) == comparison.initial_sha256, "resume",
        "initial-checkpoint: '{}' has changed since the comparison began, so that runs would start from other weights",
        weights);
  return comparison;
}

/// Throws Error when the folder of a new comparison holds results.
void check_free(const std::filesystem::path& folder, const Comparison& comparison) {
  train::check_free("compare", folder, {"results.json", "results.csv", "report.html", "report.md"});
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    train::check_free("compare", folder, {cell_checkpoint("", i).c_str()});
  }
}

/// The comparison in a folder if it has this plan, part and budget (seconds): then it goes on there, with the length
/// that was chosen for the budget. Takes the folder's lock. None without a comparison in the folder. Throws Error for
/// any other.
std::optional<Comparison> begun_before(const Comparison& planned, const PartOf& part, double budget,
                                       const std::filesystem::path& folder, std::optional<train::FolderLock>& lock) {
  if (!train::path_exists("compare", folder / "results.json")) {
    return std::nullopt;
  }
  lock.emplace("compare", folder);  // taken before reading, since another process could add results
  std::string difference;
  try {
    Comparison there = comparison_in(folder);
    Comparison wanted = planned;
    wanted.part_count = part.count;
    if (budget > 0) {
      wanted.recipe.images = there.recipe.images;
      wanted.timing_rounds = there.timing_rounds;
    }
    difference = plan_difference(there, wanted);
    if (difference.empty() && there.budget != budget) {
      difference = fmt::format("budget {}s → {}s", there.budget, budget);
    }
    if (difference.empty() && part.count > 0 && there.parts.front().number != part.number) {
      difference = fmt::format("part {} → {}", there.parts.front().number, part.number);
    }
    if (difference.empty()) {
      return there;
    }
  } catch (const Error& error) {
    difference = error.what();
  }
  fail("compare", "'{}' holds another comparison ({}): choose another output folder", folder.string(), difference);
}

using TakeEnvironment = std::function<void(const Comparison&)>;

void go_on(const Comparison& comparison, int64_t processes, const TakeEnvironment& take_environment) {
  // Results of one device say nothing of another. Older files do not name theirs.
  const std::string& device = comparison.environment.device;
  const std::string now = train::device_text();
  check(device.empty() || device == now, "resume", "device: the comparison was started on {}, and cannot go on on {}",
        device, now);
  // Without --sync-bn the statistics of batch norms depend on the number of processes.
  const int64_t before = comparison.environment.processes;
  check(before == processes, "resume",
        "procs: the comparison was started in {} process{}, and cannot go on in {}: give --procs {}", before,
        before == 1 ? "" : "es", processes, before);
  take_environment(comparison);
}

/// Goes on with the comparison in the folder of `resume`.
void resume(const ComparisonRequest& request, const TakeEnvironment& take_environment, BegunComparison& begun) {
  const std::set<std::string_view> may_change{"resume", "timing-rounds", "telemetry", "dynamics",
                                              "checkpoint-interval"};
  check(std::ranges::all_of(request.given, [&](const std::string& name) { return may_change.contains(name); }),
        "resume", "models, norms, seeds and recipe are those of the beginning: leave these options out");
  begun.options.output = request.resume;
  if (train::path_exists("resume", begun.options.output / "results.json")) {
    begun.lock.emplace("compare", begun.options.output);  // taken before reading, since another process could add
                                                          // results that would be lost
  }
  begun.comparison = comparison_in(begun.options.output);
  go_on(begun.comparison, request.options.group->size(), take_environment);
  if (request.has({"timing-rounds"})) {
    begun.comparison.timing_rounds = request.options.timing_rounds;
  }
  begun.goes_on = true;
}

/// Plans the comparison, or finds the one in the output folder. `budget` becomes 0 for one that goes on.
void plan(const ComparisonRequest& request, const TakeEnvironment& take_environment, BegunComparison& begun,
          double& budget) {
  ComparisonOptions& options = begun.options;
  const int64_t processes = options.group->size();
  if (!request.study.empty()) {
    make_study(request, options);
  }
  if (request.quick) {
    make_quick(request, options, budget);
  }
  begun.comparison = plan_comparison(options);
  check_families(request, options);
  begun.comparison.environment.processes = processes;
  for (const std::string& text : without_effect(begun.comparison, request.given_recipe_options())) {
    train::warn("compare", "{}", text);
  }
  check(request.part.count == 0 || budget == 0, "compare",
        "part: expected runs of one length in all parts, by --images or --epochs, got a budget of time");
  check(processes == 1 || budget == 0, "compare",
        "procs: expected --images or --epochs beside it, since one process alone cannot measure what fits into a "
        "budget of time");
  if (std::optional<Comparison> there =
          begun_before(begun.comparison, request.part, budget, options.output, begun.lock)) {
    begun.comparison = std::move(*there);
    go_on(begun.comparison, processes, take_environment);
    budget = 0;
    begun.goes_on = true;
  } else {
    check_free(options.output, begun.comparison);
  }
}

void print_precision_notes(const Comparison& comparison) {
  std::set<std::string> seen;
  for (const Cell& cell : comparison.cells) {
    if (seen.insert(cell.precision).second) {
      const train::Precision precision = train::precision_of(recipe_of(comparison.recipe, cell));
      const std::string text = train::precision_note(precision, default_device());
      train::say("{}{}", text, text.empty() ? "" : "\n");
    }
  }
}

/// "6 runs", "part 2 of 3: 2 of 6 runs". `dealt` are the parts of the cells of a comparison that begins.
std::string runs_text(const Comparison& comparison, const PartOf& part, const std::vector<int64_t>& dealt) {
  const std::string text = counted(std::ssize(comparison.cells), "run");
  if (part.count == 0 && comparison.part_count == 0) {
    return text;
  }
  const bool divided = comparison.part_count > 0;
  const auto here = divided ? std::ranges::count_if(comparison.cells, is_here) : std::ranges::count(dealt, part.number);
  return fmt::format("part {} of {}: {} of {}", divided ? comparison.parts.front().number : part.number,
                     divided ? comparison.part_count : part.count, here, text);
}

/// The threads of this process and the number of all.
std::string threads_text(int64_t processes) {
  train::Environment here;
  here.threads = num_threads();
  here.processes = processes;
  return train::threads_text(here);
}

}  // namespace

ComparisonRequest::ComparisonRequest() {
  options.recipe = default_recipe();
  options.models = {"resnet50", "convnext_atto"};
  options.norms = {"batch", "layer2d", "group"};
}

bool ComparisonRequest::has(const std::vector<std::string_view>& names) const {
  return std::ranges::any_of(names, [&](std::string_view name) { return given.contains(name); });
}

std::vector<std::string> ComparisonRequest::given_recipe_options() const {
  return filtered(given, [](const std::string& name) {
    const train::RecipeOption* option = train::find_recipe_option(name);
    return option != nullptr && !option->is_switch();
  });
}

std::vector<train::OptionRow> option_rows(ComparisonRequest& request) {
  std::vector<OptionRow> rows;
  const auto add = [&](std::vector<OptionRow> more) { std::ranges::move(more, std::back_inserter(rows)); };
  std::vector<std::string_view> axes{"dataset", "batch-size", "channels-last", "lr", "precision"};
  for (const OptionAxis& one : option_axes()) {
    axes.emplace_back(one.option);
  }
  const auto add_of_recipe = [&](const std::vector<RecipePart>& parts) {
    for (const train::RecipeOption& option : train::recipe_options()) {
      if (is_in(parts, option.part) && !is_in(axes, option.name)) {
        rows.push_back(of_recipe(option, request));
      }
    }
  };
  add(grid(request));
  add_of_recipe({RecipePart::network});
  add(further(request));
  add_of_recipe({RecipePart::data, RecipePart::shape, RecipePart::length, RecipePart::augmentation, RecipePart::update,
                 RecipePart::steps, RecipePart::start});
  add({axis({"precision", "precisions"}, "precision", request.options.precisions)});
  add_of_recipe({RecipePart::precision});
  add(running(request));
  for (OptionRow& row : rows) {
    row.begin = [&request, name = row.names.back(), begin = std::move(row.begin)] {
      request.given.insert(name);
      if (begin) {
        begin();
      }
    };
  }
  return rows;
}

void check_given_together(const std::vector<train::OptionRow>& rows, const ComparisonRequest& request) {
  for (const OptionRow& row : rows) {
    for (const std::string& other : row.excludes) {
      check(!request.has({row.names.back()}) || !request.has({other}), "compare", "--{} excludes --{}", other,
            row.names.back());
    }
  }
}

void begin_comparison(const ComparisonRequest& request, const TakeEnvironment& take_environment,
                      BegunComparison& begun) {
  const bench::Clock::time_point start = bench::Clock::now();
  Comparison& comparison = begun.comparison;
  ComparisonOptions& options = begun.options = request.options;
  std::erase_if(options.options, [](const auto& axis) { return axis.second.empty(); });
  const int64_t processes = options.group->size();
  double budget = request.budget;
  if (request.resume.empty()) {
    plan(request, take_environment, begun, budget);
  } else {
    resume(request, take_environment, begun);
  }
  check_each_has_images(comparison, processes);
  if (begun.goes_on) {
    options.telemetry = request.has({"telemetry"}) ? options.telemetry : comparison.telemetry;
    comparison.telemetry = options.telemetry;
    options.dynamics = request.has({"dynamics"}) ? options.dynamics : comparison.dynamics;
    comparison.dynamics = options.dynamics;
  }
  check_dynamics(options, budget);
  print_precision_notes(comparison);
  const bool divides = !begun.goes_on && request.part.count > 0;
  const std::vector<int64_t> dealt =
      divides ? deal(comparison, request.part.count) : std::vector<int64_t>(comparison.cells.size(), 0);
  rehearse_comparison(comparison);  // before a word is said, so that a mistake is one line
  train::say("{} on {} at {}x{}, {}; the report grows in {}\n", runs_text(comparison, request.part, dealt),
             values_of(comparison, "dataset"), comparison.recipe.image_size, comparison.recipe.image_size,
             threads_text(processes), options.output.string());
  if (divides) {  // only now: all parts find the same mistakes
    take_part(comparison, request.part, dealt);
  }
  if (budget > 0) {
    options.expected_seconds =
        fit_into(budget, bench::seconds_since(start), /* firm= */ request.budget > 0, comparison);
  }
  if (!begun.lock) {  // only now, so that a mistake leaves no folder
    train::make_output_folder("compare", options.output);
    begun.lock.emplace("compare", options.output);
    check_free(options.output, comparison);  // another process may have written since
  }
  options.lock = &*begun.lock;
}

bool any_in_state(const Comparison& comparison, std::initializer_list<CellState> states) {
  return std::ranges::any_of(comparison.cells, [&](const Cell& cell) { return is_in(states, cell.state); });
}

}  // namespace norma::lab
