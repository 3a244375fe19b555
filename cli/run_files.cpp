#include "cli/run_files.h"

#include "cli/option.h"
#include "core/excerpt.h"
#include "train/output.h"
#include "train/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

namespace norma::cli {

namespace {

constexpr const char* kOp = "train";

constexpr std::array<std::string_view, 8> kGoOn = {"tensorboard",  "log-json", "checkpoint-hist", "recovery-interval",
                                                   "log-interval", "workers",  "threads",         "device"};

/// The lines of a run's args.toml that stay valid when it is resumed; none if no run has written that file.
std::vector<ConfigLine> lines_that_go_on(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "args.toml";
  if (!is_of_a_run(file)) {
    return {};
  }
  std::vector<ConfigLine> lines = read_config(kOp, file);
  std::erase_if(lines, [](const ConfigLine& line) { return std::ranges::find(kGoOn, line.name) == kGoOn.end(); });
  return lines;
}

}  // namespace

void RunFiles::add(CLI::App& app) {
  const auto number = [&](const char* name, const Range<int64_t>& range, int64_t& value, const std::string& description,
                          const std::string& otherwise) {
    add_value<int64_t>(
        app, name, range, [&value](int64_t n) { value = n; }, description)
        .type_name("N")
        .default_str(otherwise)
        .group("Running");
  };
  number("--checkpoint-hist", train::ranges::kCheckpointHist, checkpoint_hist,
         "keep the N best of the checkpoints after each epoch (checkpoint-EPOCH; from 2 on), and the N newest for "
         "recovery",
         "1: model_best alone");
  number("--recovery-interval", train::ranges::kStepsOrNone, recovery_interval,
         "write a checkpoint recovery-EPOCH-STEP every N steps of the run, too", "0: none");
  add_switch(app, "--telemetry", telemetry,
             "write telemetry.json: curves, where time and memory go, copies and the numbers in each layer")
      .group("Running");
  add_switch(app, "--tensorboard,!--no-tensorboard", tensorboard,
             "write an event file for TensorBoard: curves, and how the weights of the norms are spread")
      .group("Running");
  add_switch(app, "--log-json", log_json, "write log.jsonl: what metrics.csv and summary.csv have, an object per line")
      .group("Running");
}

std::string RunFiles::config_text() const {
  const RunFiles defaults;
  std::string text;
  text += telemetry ? "telemetry = true\n" : "";
  text += tensorboard ? "tensorboard = true\n" : "";
  text += log_json ? "log-json = true\n" : "";
  text += checkpoint_hist != defaults.checkpoint_hist ? fmt::format("checkpoint-hist = {}\n", checkpoint_hist) : "";
  text +=
      recovery_interval != defaults.recovery_interval ? fmt::format("recovery-interval = {}\n", recovery_interval) : "";
  return text;
}

train::KeepOptions RunFiles::keep() const {
  return {.best = true, .history = checkpoint_hist, .recovery_interval = recovery_interval};
}

bool is_of_a_run(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) && line == kArgumentsHead;
}

std::filesystem::path resumed_folder(const std::filesystem::path& given) {
  if (train::is_folder(kOp, given)) {
    return given;
  }
  return given.has_parent_path() ? given.parent_path() : ".";
}

std::vector<std::vector<ConfigLine>> lines_of_files(const std::string& command, const std::vector<std::string>& words) {
  std::vector<std::vector<ConfigLine>> files;
  if (command != kOp) {
    return files;
  }
  if (const std::string config = value_in(words, kConfigOption); !config.empty()) {
    files.push_back(read_config(kOp, config));
  }
  if (const std::string resume = value_in(words, "--resume"); !resume.empty()) {
    files.push_back(lines_that_go_on(resumed_folder(resume)));
  }
  return files;
}

std::vector<std::string> other_lines(const std::filesystem::path& folder, const std::string& recipe_lines) {
  const std::filesystem::path file = folder / "args.toml";
  std::vector<std::string> others;
  if (!is_of_a_run(file)) {
    return others;
  }
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::string name = line.substr(0, line.find_first_of(" ="));
    const bool of_recipe = !line.empty() && line[0] != '#' && name != "telemetry" && name != "quiet" &&
                           name != "plugin" && std::ranges::find(kGoOn, name) == kGoOn.end();
    if (of_recipe && ("\n" + recipe_lines).find("\n" + line + "\n") == std::string::npos) {
      others.push_back(excerpt(line));
    }
  }
  return others;
}

}  // namespace norma::cli
