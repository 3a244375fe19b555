#include "cli/options.h"

#include "cli/command.h"
#include "cli/option.h"
#include "cli/plugins.h"
#include "core/error.h"
#include "core/nearest_name.h"
#include "core/parallel.h"
#include "core/toml_lines.h"
#include "nn/plugin.h"
#include "ops/conv/conv.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace norma::cli {

namespace {

constexpr const char* kRunning = "Running";

/// The names for CLI11: "-b,--batch-size"; "--flip,!--no-flip".
std::string names_of(const train::RecipeOption& option) {
  const std::string letter = option.letter != 0 ? fmt::format("-{},", option.letter) : "";
  return option.is_switch() ? fmt::format("--{0},!--no-{0}", option.name) : letter + "--" + option.name;
}

}  // namespace

void RecipeOptions::add(CLI::App& app, const train::RecipeOption& option) {
  const std::string names = names_of(option);
  const auto value = std::make_shared<train::Recipe>();
  const auto begin = [given = given_, its = &option, value] {
    its->clear(*value);
    given->emplace_back(its, value);
  };
  const auto take = [its = &option, value](const std::string& word) { return its->take(*value, word); };
  const auto begin_and_take = [begin, take](const std::string& word) {
    begin();
    return take(word);
  };
  if (option.is_switch()) {
    const bool on = option.items(defaults_).front() == "true";
    const auto turn = [begin_and_take](bool it_is_on) { begin_and_take(it_is_on ? "true" : "false"); };
    add_switch(app, names, turn, option.help_text() + (on ? " [on]" : " [off]")).group(option.heading);
    return;
  }
  Option added = option.is_list() ? add_items(app, names, option.expected, begin, take, option.help_text())
                                  : add_item(app, names, option.expected, begin_and_take, option.help_text());
  added.type_name(option.value_name).default_str(option.default_text(defaults_)).group(option.heading);
  with_value_.emplace_back(option.name, added);
  if (!option.replaces.empty()) {
    exclude(app, {"--" + option.replaces, "--" + option.name});
  }
}

void RecipeOptions::add(CLI::App& app, const std::vector<train::RecipePart>& parts,
                        const std::vector<std::string>& but) {
  for (const train::RecipeOption& option : train::recipe_options()) {
    if (std::ranges::find(parts, option.part) != parts.end() && std::ranges::find(but, option.name) == but.end()) {
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
  std::vector<std::string> names;
  for (const auto& [name, option] : with_value_) {
    if (option.typed()) {
      names.push_back(name);
    }
  }
  return names;
}

train::Recipe RecipeOptions::applied_to(train::Recipe recipe) const {
  const std::string dataset = recipe.dataset;
  const std::string folder = std::exchange(recipe.data_dir, "");
  for (const auto& [option, value] : *given_) {
    option->give(*value, recipe);
  }
  if (recipe.data_dir.empty() && recipe.dataset == dataset) {
    recipe.data_dir = folder;  // another dataset does not lie in the old one's folder
  }
  return recipe;
}

const char* dynamics_help() {
  return "also record how the network moves, some of gradients, weights, saturation, sharpness, or all: gradient norms "
         "by depth, effective learning rates, bounded norms, the largest eigenvalue of the Hessian (docs/telemetry.md)";
}

void print_precision_note(const train::Precision& precision) {
  const std::string text = train::precision_note(precision, default_device());
  if (!text.empty()) {
    train::say("{}\n", text);
  }
}

const std::vector<RunOption>& run_options() {
  using Number = RunOption::Number;
  static const std::vector<RunOption> all = {
      // A resumed run would overwrite the record of the run before.
      {.name = "telemetry",
       .field = &RunOptions::telemetry,
       .help = "write telemetry.json: curves, where time and memory go, copies and the numbers in each layer",
       .from_file = FromFile::new_run},
      {.name = "dynamics",
       .field = &RunOptions::dynamics,
       .help = dynamics_help(),
       .otherwise = "none",
       .from_file = FromFile::new_run,
       .word = "LIST"},
      {.name = "tensorboard",
       .field = &RunOptions::tensorboard,
       .help = "write an event file for TensorBoard: curves, and how the weights of the norms are spread",
       .names = "--tensorboard,!--no-tensorboard"},
      {"log-json", &RunOptions::log_json, "write log.jsonl: what metrics.csv and summary.csv have, an object per line"},
      {"checkpoint-hist", Number{&RunOptions::checkpoint_hist, train::ranges::kCheckpointHist},
       "keep the N best of the checkpoints after each epoch (checkpoint-EPOCH; from 2 on), and the N newest for "
       "recovery",
       "1: model_best alone"},
      {"recovery-interval", Number{&RunOptions::recovery_interval, train::ranges::kStepsOrNone},
       "write a checkpoint recovery-EPOCH-STEP every N steps of the run, too", "0: none"},
      {"threads", Number{&RunOptions::threads, train::ranges::kThreads}, "threads for computing", "0: one per core"},
      {.name = "workers",
       .field = Number{&RunOptions::workers, train::ranges::kWorkers},
       .help = "background threads that prepare images",
       .names = "-j,--workers"},
      {"log-interval", Number{&RunOptions::log_interval, train::ranges::kLogInterval},
       "steps between two lines of the log"},
      {"device", &RunOptions::device, "where it is computed: cpu, cuda, cuda:N, or cuda-emulated, which is for tests",
       "cpu, or NORMA_DEVICE"},
      {.name = "conv",
       .field = &RunOptions::conv,
       .help =
           "fast or exact: float32 3x3 convolutions on CPUs by Winograd's transforms where those are faster, or never "
           "(docs/precision.md)",
       .otherwise = "fast, or NORMA_CONV",
       .word = "NAME"},
      {.name = "cuda-graph",
       .field = &RunOptions::cuda_graph,
       .help = "on, off or auto: each step by one launch of a CUDA graph; auto: where a step can be recorded",
       .otherwise = "auto",
       .word = "MODE"},
      {.name = "procs",
       .field = Number{&RunOptions::procs, train::ranges::kProcesses},
       .help = "processes that share the images of each batch (docs/parallel.md)",
       .otherwise = "1, or those that mpirun has started",
       .from_file = FromFile::none},
      {.name = "timeout",
       .field = Number{&RunOptions::timeout, train::ranges::kTimeout},
       .help = "seconds without a word from another process after which it counts as lost",
       .from_file = FromFile::none},
      {.name = "verbose-ranks",
       .field = &RunOptions::verbose_ranks,
       .help = "let all processes print, not the first alone",
       .from_file = FromFile::none},
      {.name = "quiet", .field = &RunOptions::quiet, .help = "show no progress", .from_file = FromFile::none}};
  return all;
}

void RunOptions::add(CLI::App& app, const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) {
    const RunOption& option = *std::ranges::find(run_options(), name, &RunOption::name);
    const std::string words = *option.names != '\0' ? option.names : fmt::format("--{}", name);
    if (const auto* on = std::get_if<bool RunOptions::*>(&option.field)) {
      add_switch(app, words, this->**on, option.help).group(kRunning);
    } else if (const auto* text = std::get_if<std::string RunOptions::*>(&option.field)) {
      add_text(app, words, "a name", this->**text, option.help)
          .type_name(option.word)
          .default_str(option.otherwise)
          .group(kRunning);
    } else {
      const auto& number = std::get<RunOption::Number>(option.field);
      add_value<int64_t>(
          app, words, number.range, [this, at = number.at](int64_t n) { this->*at = n; }, option.help)
          .type_name("N")
          .default_str(option.otherwise.empty() ? fmt::format("{}", this->*number.at) : option.otherwise)
          .group(kRunning);
    }
  }
}

void RunOptions::add_plugin(CLI::App& app) {
  add_repeated(app, "--plugin", "the name of a file", plugins,
               "a shared library with norms of your own (docs/plugins.md); may be given several times")
      .type_name("FILE")
      .group("Network");
}

std::string RunOptions::plugin_words() {
  return cli::plugin_words(nn::loaded_plugins());
}

std::string RunOptions::config_text() const {
  const RunOptions defaults;
  std::string text;
  for (const RunOption& option : run_options()) {
    const auto value_in = [&](const RunOptions& options) {
      if (const auto* device_name = std::get_if<std::string RunOptions::*>(&option.field)) {
        return toml_string(options.**device_name);
      }
      const auto* number = std::get_if<RunOption::Number>(&option.field);
      return number != nullptr ? fmt::format("{}", options.*number->at)
                               : fmt::format("{}", options.*std::get<bool RunOptions::*>(option.field));
    };
    if (option.from_file != FromFile::none && value_in(*this) != value_in(defaults)) {
      text += fmt::format("{} = {}\n", option.name, value_in(*this));
    }
  }
  std::string files;
  for (const nn::PluginRecord& plugin : nn::loaded_plugins()) {
    files += (files.empty() ? "" : ", ") + toml_string(recorded_word(plugin));
  }
  return text + (files.empty() ? "" : fmt::format("plugin = [{}]\n", files));
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
    check(std::ranges::find(names, conv) != names.end(), command, "conv: {}", unknown_name("mode", conv, names));
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

}  // namespace norma::cli
