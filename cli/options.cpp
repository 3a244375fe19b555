#include "cli/options.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/toml_lines.h"
#include "cli/command.h"
#include "cli/run_files.h"
#include "core/parallel.h"
#include "lab/telemetry/dynamics_parts.h"
#include "models/registry.h"
#include "ops/conv/conv.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/loop.h"
#include "train/training_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <tuple>

namespace norma::cli {

namespace {

constexpr const char* kRunning = "Running";

std::vector<std::string> device_choices() {
  return {"cpu", "cuda", "cuda-emulated"};
}

/// True iff a file is a checkpoint of a run with this network, under any of its names; it then has the network's other
/// settings, too.
bool is_run_of(std::string_view op, const std::string& model, const std::filesystem::path& file) {
  if (!train::path_exists(op, file) || !train::is_checkpoint(file)) {
    return false;
  }
  const train::Checkpoint head = train::load_checkpoint_metadata(file);
  return models::network_of(head.model_name) == models::network_of(model) && head.options.contains(train::kRecipeKey);
}

}  // namespace

void RecipeOptions::add(CLI::App& app, const train::RecipeOption& option) {
  const auto value = std::make_shared<train::Recipe>();
  train::OptionRow row = option.row(defaults_);
  row.begin = [given = given_, its = &option, value] {
    its->clear(*value);
    given->emplace_back(its, value);
  };
  row.take = [its = &option, value](const std::string& word) { return its->take(*value, word); };
  const Option added = cli::add(app, row);
  if (!row.is_switch()) {
    with_value_.emplace_back(option.name, added);
  }
  if (!option.replaces.empty()) {
    exclude(app, "--" + option.replaces, "--" + option.name);
  }
}

void RecipeOptions::add(CLI::App& app, const std::vector<train::RecipePart>& parts,
                        const std::vector<std::string>& but) {
  for (const train::RecipeOption& option : train::recipe_options()) {
    if (is_in(parts, option.part) && !is_in(but, option.name)) {
      add(app, option);
    }
  }
}

void RecipeOptions::add_all(CLI::App& app) {
  for (const train::RecipeOption& option : train::recipe_options()) {
    add(app, option);
  }
}

std::vector<std::string> RecipeOptions::typed() const {
  const auto given = filtered(with_value_, [](const auto& one) { return one.second.typed(); });
  return mapped(given, &std::pair<std::string, Option>::first);
}

train::Recipe RecipeOptions::applied_to(train::Recipe recipe) const {
  const std::string model = recipe.model;
  const std::string dataset = recipe.dataset;
  const std::string folder = std::exchange(recipe.data_dir, "");
  for (const auto& [option, value] : *given_) {
    option->give(*value, recipe);
  }
  if (recipe.data_dir.empty() && recipe.dataset == dataset) {
    recipe.data_dir = folder;  // another dataset does not lie in the old one's folder
  }
  if (recipe.model != model &&
      std::ranges::none_of(*given_, [](const auto& one) { return one.first->name == "img-size"; })) {
    recipe.image_size = models::image_size_in(recipe.model).value_or(recipe.image_size);
  }
  return recipe;
}

void print_precision_note(const train::Precision& precision) {
  const std::string text = train::precision_note(precision, default_device());
  if (!text.empty()) {
    train::say("{}\n", text);
  }
}

const std::vector<RunOption>& run_options() {
  using Number = RunOption::Number;
  using Run = RunOptions;
  constexpr const char* kAll = "compare train eval export run audit bench bench-norms check-norm";
  constexpr const char* kComputing = "compare train eval run audit bench bench-norms check-norm";
  constexpr const char* kTalking = "compare train eval audit bench bench-norms check-norm";
  static const std::vector<RunOption> options = {
      // A resumed run would overwrite the record of the run before.
      RunOption("telemetry", "train", &Run::telemetry,
                "write telemetry.json: curves, where time and memory go, copies and the numbers in each layer",
                {.from_file = FromFile::new_run}),
      RunOption("dynamics", "train", &Run::dynamics, lab::dynamics_help(),
                {.otherwise = "none",
                 .from_file = FromFile::new_run,
                 .value_name = "LIST",
                 .choices = lab::dynamics_choices}),
      RunOption("tensorboard", "train", &Run::tensorboard,
                "write an event file for TensorBoard: curves, and how the weights of the norms are spread",
                {.has_opposite = true}),
      RunOption("log-json", "train", &Run::log_json,
                "write log.jsonl: what metrics.csv and summary.csv have, an object per line"),
      RunOption(
          "checkpoint-hist", "train", Number{&Run::checkpoint_hist, train::ranges::kCheckpointHist},
          "keep the N best of the checkpoints after each epoch (checkpoint-EPOCH; from 2 on), and the N newest for "
          "recovery",
          {.otherwise = "1: model_best alone"}),
      RunOption("recovery-interval", "train", Number{&Run::recovery_interval, train::ranges::kStepsOrNone},
                "write a checkpoint recovery-EPOCH-STEP every N steps of the run, too", {.otherwise = "0: none"}),
      RunOption("threads", kAll, Number{&Run::threads, train::ranges::kThreads}, "threads for computing",
                {.otherwise = "0: one per core"}),
      RunOption("device", kComputing, &Run::device,
                "where it is computed: cpu, cuda, cuda:N, or cuda-emulated, which is for tests",
                {.otherwise = "cpu, or NORMA_DEVICE", .value_name = "DEVICE", .choices = device_choices}),
      RunOption("conv", "compare train eval run bench", &Run::conv,
                "fast or exact: float32 3x3 convolutions on CPUs by Winograd's transforms where those are faster, or "
                "never (docs/precision.md)",
                {.otherwise = "fast, or NORMA_CONV", .value_name = "NAME", .choices = conv2d_modes}),
      RunOption("cuda-graph", "train bench", &Run::cuda_graph,
                "on, off or auto: each step by one launch of a CUDA graph; auto: where a step can be recorded",
                {.otherwise = "auto", .value_name = "MODE", .choices = train::graph_mode_names}),
      RunOption("workers", "compare train eval", Number{&Run::workers, train::ranges::kWorkers},
                "background threads that prepare images", {.letter = 'j'}),
      RunOption("log-interval", "compare train", Number{&Run::log_interval, train::ranges::kLogInterval},
                "steps between two lines of the log"),
      RunOption("procs", "compare train", Number{&Run::procs, train::ranges::kProcesses},
                "processes that share the images of each batch (docs/parallel.md)",
                {.otherwise = "1, or those that mpirun has started", .from_file = FromFile::none}),
      RunOption("timeout", "compare train bench", Number{&Run::timeout, train::ranges::kTimeout},
                "seconds without a word from another process after which it counts as lost",
                {.from_file = FromFile::none}),
      RunOption("verbose-ranks", "compare train bench", &Run::verbose_ranks,
                "let all processes print, not the first alone", {.from_file = FromFile::none}),
      RunOption("quiet", kTalking, &Run::quiet, "show no progress", {.from_file = FromFile::none})};
  return options;
}

train::OptionRow RunOption::row(RunOptions& options) const {
  train::OptionRow row{.names = letter == 0 ? std::vector{name} : std::vector{std::string(1, letter), name},
                       .heading = kRunning,
                       .value_name = value_name,
                       .expected = "a name",
                       .help = help,
                       .take = {},
                       .otherwise = otherwise,
                       .choices = choices == nullptr ? std::vector<std::string>() : choices(),
                       .has_opposite = has_opposite};
  if (const auto* on = std::get_if<bool RunOptions::*>(&field)) {
    row.take = train::into(options.**on);
  } else if (const auto* text = std::get_if<std::string RunOptions::*>(&field)) {
    row.take = train::into(options.**text);
  } else {
    const auto& [at, range] = std::get<Number>(field);
    row.value_name = "N";
    row.expected = to_string(range);
    row.otherwise = otherwise.empty() ? fmt::format("{}", options.*at) : otherwise;
    row.take = train::into(options.*at, range);
  }
  return row;
}

std::string RunOption::toml(const RunOptions& options) const {
  if (const auto* text = std::get_if<std::string RunOptions::*>(&field)) {
    return toml_string(options.**text);
  }
  const auto* number = std::get_if<Number>(&field);
  return number != nullptr ? fmt::format("{}", options.*number->at)
                           : fmt::format("{}", options.*std::get<bool RunOptions::*>(field));
}

std::vector<train::OptionRow> RunOptions::rows(std::string_view command) {
  std::vector<train::OptionRow> rows;
  for (const RunOption& option : run_options()) {
    if (fmt::format(" {} ", option.commands).find(fmt::format(" {} ", command)) != std::string::npos) {
      rows.push_back(option.row(*this));
    }
  }
  return rows;
}

void RunOptions::add(CLI::App& app) {
  if (command_name(app) != "audit") {  // which knows its norms by their definitions
    add_repeated(app, "--plugin", "the name of a file", plugins,
                 "a shared library with norms of your own (docs/plugins.md); may be given several times",
                 {.value = "FILE", .heading = "Network"});
  }
  for (const train::OptionRow& row : rows(command_name(app))) {
    cli::add(app, row);
  }
}

std::string RunOptions::plugin_words() {
  return cli::plugin_words(nn::loaded_plugins());
}

std::string RunOptions::config_text() const {
  const RunOptions defaults;
  std::string text;
  for (const RunOption& option : run_options()) {
    if (option.from_file != FromFile::none && option.toml(*this) != option.toml(defaults)) {
      text += fmt::format("{} = {}\n", option.name, option.toml(*this));
    }
  }
  const auto files =
      mapped(nn::loaded_plugins(), [](const nn::PluginRecord& plugin) { return toml_string(recorded_word(plugin)); });
  return text + (files.empty() ? "" : fmt::format("plugin = [{}]\n", fmt::join(files, ", ")));
}

train::KeepOptions RunOptions::keep() const {
  return {.best = true, .history = checkpoint_hist, .recovery_interval = recovery_interval};
}

void RunOptions::apply(std::string_view command) const {
  if (!device.empty()) {
    check_available(command, device_from_string(device));
    set_default_device(device_from_string(device));
  }
  if (!conv.empty()) {
    const std::vector<std::string> names = conv2d_modes();
    check(is_in(names, conv), command, "conv: {}", unknown_name("mode", conv, names));
    set_conv2d_implementation(conv, kCpu);
  }
  if (threads > 0) {
    set_num_threads(static_cast<int>(threads));
  }
  check_range("threads", "OMP_NUM_THREADS", num_threads(), train::ranges::kThreads);
  // If the runtime behind parallel loops does not get a thread, it ends the program with a text of its own.
  {
    std::mutex until_all_are_there;
    std::vector<std::jthread> trial;
    try {
      const std::lock_guard lock(until_all_are_there);
      for (int i = 1; i < num_threads(); ++i) {
        trial.emplace_back([&] { const std::lock_guard wait(until_all_are_there); });
      }
    } catch (const std::system_error& error) {
      fail("threads", "the system gives {} of {}: {}", trial.size() + 1, num_threads(), error.code().message());
    }
  }
  // The runtime takes its threads now and keeps them, before other memory takes the room for their stacks.
  parallel_for(0, num_threads(), 1, [](int64_t, int64_t) {});
}

int interrupted_code() {
  const int signal = train::interrupting_signal();
  return signal == SIGPIPE ? kFailure : 128 + signal;
}

std::string new_run_folder(const std::string& kind) {
  const std::string base = "runs/" + kind + "-" + train::local_time(/* compact= */ true);
  std::string folder = base;
  for (int i = 2; train::path_exists("output", folder); ++i) {
    folder = fmt::format("{}-{}", base, i);
  }
  return folder;
}

void add_weights_options(CLI::App& app, train::WeightsOptions& options) {
  add_switch(app, "--use-ema", options.use_ema, "the averaged weights in the file, as of 'norma train --model-ema'");
  add_text(app, "--weights-prefix", "a text", options.prefix,
           "a part of what stands before the weights' names in a file of several networks: encoder_q",
           {.value = "TEXT"});
}

train::Recipe recipe_for(const Trained& trained, const RecipeOptions& options) {
  train::Recipe recipe = options.applied_to(trained.recipe);
  if (trained.of_run && recipe.model == models::network_of(trained.recipe.model)) {
    recipe.model = trained.recipe.model;
  }
  if (const std::vector<std::string> typed = options.typed(); trained.of_run && !is_in(typed, "img-size")) {
    recipe.image_size = trained.recipe.image_size;  // whatever the name says
  }
  if (trained.of_run && recipe.qk_norm.empty()) {  // --qk-norm none is as if the option were not there
    recipe.qk_norm = trained.recipe.qk_norm;
  }
  return recipe;
}

std::vector<std::string> kept_norms(const Trained& trained, const train::Recipe& recipe) {
  const auto kept = [](const std::string& norm, const std::string& of_run) { return norm == of_run ? norm : ""; };
  return {kept(recipe.norm, trained.recipe.norm), kept(recipe.qk_norm, trained.recipe.qk_norm)};
}

void warn_of_other_norm(std::string_view op, const Trained& trained, const train::Recipe& recipe) {
  const auto norm_of = [&](const train::Recipe& of) {
    return of.norm.empty() ? models::own_norm(recipe.model) : of.norm;
  };
  const auto qk_norm_of = [](const train::Recipe& of) { return of.qk_norm.empty() ? "none" : of.qk_norm; };
  for (const auto& [option, before, now] : {std::tuple("norm", norm_of(trained.recipe), norm_of(recipe)),
                                            std::tuple("qk-norm", qk_norm_of(trained.recipe), qk_norm_of(recipe))}) {
    if (trained.of_run && models::complete_norm(recipe.model, before) != models::complete_norm(recipe.model, now)) {
      train::warn(op, "the weights were trained with {} {}, and {} takes them as they are: the network is another one",
                  option, before, now);
    }
  }
}

std::filesystem::path checkpoint_file(std::string_view op, const std::filesystem::path& given) {
  if (!train::is_folder(op, given)) {
    return given;
  }
  std::vector<std::string> warnings;
  std::filesystem::path newest = train::newest_checkpoint(given, warnings);
  for (const std::string& text : warnings) {
    train::warn(op, "{}", text);
  }
  return newest;
}

Trained trained_in(const std::filesystem::path& file, std::string_view op, const RecipeOptions& options,
                   bool names_model) {
  if (names_model && !is_run_of(op, options.applied_to(options.defaults()).model, file)) {
    return {.recipe = options.defaults(), .class_names = {}, .of_run = false};
  }
  const train::Checkpoint checkpoint = train::load_checkpoint(file);
  return {.recipe = train::recipe_of(checkpoint),
          .class_names = train::class_names_of(checkpoint),
          .plugins = plugins_of(checkpoint, file),
          .normalization = train::normalization_of(checkpoint)};
}

}  // namespace norma::cli
