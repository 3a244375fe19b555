#include "cli/options.h"

#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/plugins.h"
#include "core/error.h"
#include "core/parallel.h"
#include "core/toml_lines.h"
#include "nn/plugin.h"
#include "train/environment.h"
#include "train/interrupt.h"
#include "train/output.h"
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

/// "-b,--batch-size"; "--flip,!--no-flip".
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
    recipe.data_dir = folder;  // another dataset is not in the folder of the former
  }
  return recipe;
}

void print_precision_note(const train::Precision& precision) {
  const std::string text = train::precision_note(precision, default_device());
  if (!text.empty()) {
    train::say("{}\n", text);
  }
}

void RunOptions::add_threads(CLI::App& app) {
  add_value<int64_t>(
      app, "--threads", train::ranges::kThreads, [this](int64_t n) { threads = n; }, "threads for computing")
      .type_name("N")
      .default_str("0: one per core")
      .group(kRunning);
}

void RunOptions::add_device(CLI::App& app) {
  add_text(app, "--device", "a name", device, "where it is computed: cpu, cuda, or cuda-emulated, which is for tests")
      .type_name("DEVICE")
      .default_str("cpu, or NORMA_DEVICE")
      .group(kRunning);
}

void RunOptions::add_plugin(CLI::App& app) {
  add_list(app, "--plugin", "the name of a file", plugins, "shared libraries with norms of your own (docs/plugins.md)")
      .type_name("FILE")
      .group("Network");
}

std::string RunOptions::plugin_words() {
  std::string files;
  for (const nn::PluginRecord& plugin : nn::loaded_plugins()) {
    files += (files.empty() ? " --plugin " : ",") + plugin.file;
  }
  return files;
}

std::string RunOptions::config_text() const {
  const RunOptions defaults;
  std::string text;
  for (const auto& [name, field] : {std::pair("threads", &RunOptions::threads),
                                    {"workers", &RunOptions::workers},
                                    {"log-interval", &RunOptions::log_interval}}) {
    text += this->*field != defaults.*field ? fmt::format("{} = {}\n", name, this->*field) : "";
  }
  text += device.empty() ? "" : fmt::format("device = {}\n", toml_string(device));
  std::string files;
  for (const nn::PluginRecord& plugin : nn::loaded_plugins()) {
    files += (files.empty() ? "" : ", ") + toml_string(recorded_word(plugin));
  }
  return text + (files.empty() ? "" : fmt::format("plugin = [{}]\n", files));
}

void RunOptions::add_workers(CLI::App& app) {
  add_value<int64_t>(
      app, "-j,--workers", train::ranges::kWorkers, [this](int64_t n) { workers = n; },
      "background threads that prepare images")
      .type_name("N")
      .default_str(fmt::format("{}", workers))
      .group(kRunning);
}

void RunOptions::add_display(CLI::App& app) {
  add_value<int64_t>(
      app, "--log-interval", train::ranges::kLogInterval, [this](int64_t n) { log_interval = n; },
      "steps between two lines of the log")
      .type_name("N")
      .default_str(fmt::format("{}", log_interval))
      .group(kRunning);
  add_quiet(app);
}

void RunOptions::add_quiet(CLI::App& app) {
  add_switch(app, "--quiet", quiet, "show no progress").group(kRunning);
}

void RunOptions::add_all(CLI::App& app) {
  add_threads(app);
  add_device(app);
  add_workers(app);
  add_display(app);
}

void RunOptions::apply(std::string_view command) const {
  if (!device.empty()) {
    check_available(command, device_from_string(device));
    set_default_device(device_from_string(device));
  }
  if (threads > 0) {
    set_num_threads(static_cast<int>(threads));
  }
  check_range("threads", "OMP_NUM_THREADS", num_threads(), train::ranges::kThreads);
  // The runtime behind parallel loops ends the program when it does not get a thread, with a text of its own.
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
  // It takes its threads now, before other memory takes the room for their stacks, and keeps them.
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
