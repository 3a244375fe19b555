#include "cli/run_files.h"

#include "cli/config_file.h"
#include "cli/option.h"
#include "core/error.h"
#include "train/ranges.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <fstream>
#include <utility>

namespace norma::cli {

namespace {

constexpr const char* kOp = "train";

struct Switch {
  const char* name;
  std::optional<bool> RunFiles::*value;
  bool goes_on;  ///< in the resumed run; telemetry.json would be written over with what comes after
  bool can_end;  ///< with --no-…; log.jsonl goes on wherever there is one
};
constexpr std::array<Switch, 3> kSwitches = {{{"telemetry", &RunFiles::telemetry, false, false},
                                              {"tensorboard", &RunFiles::tensorboard, true, true},
                                              {"log-json", &RunFiles::log_json, true, false}}};

struct Number {
  const char* name;
  std::optional<int64_t> RunFiles::*value;
  Range<int64_t> range;
  int64_t otherwise;
};
constexpr std::array<Number, 2> kNumbers = {
    {{"checkpoint-hist", &RunFiles::checkpoint_hist, train::ranges::kCheckpointHist, train::KeepOptions{}.history},
     {"recovery-interval", &RunFiles::recovery_interval, train::ranges::kStepsOrNone,
      train::KeepOptions{}.recovery_interval}}};

bool is_of_a_run(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) && line == kArgumentsHead;
}

int64_t number_of(const ConfigLine& line, const Range<int64_t>& range) {
  int64_t value = 0;
  const char* last = line.value.data() + line.value.size();
  const auto [end, error] = std::from_chars(line.value.data(), last, value);
  check(error == std::errc() && end == last && range.contains(value), kOp, "{}: {}: expected {}, got {}", line.place,
        line.name, to_string(range), line.value);
  return value;
}

}  // namespace

void RunFiles::add(CLI::App& app) {
  const auto number = [&](const Number& option, const std::string& description, const std::string& otherwise) {
    add_value<int64_t>(
        app, fmt::format("--{}", option.name), option.range,
        [this, value = option.value](int64_t n) { this->*value = n; }, description)
        .type_name("N")
        .default_str(otherwise)
        .group("Running");
  };
  number(kNumbers[0],
         "keep the N best of the checkpoints after each epoch (checkpoint-EPOCH; from 2 on), and the N newest for "
         "recovery",
         "1: model_best alone");
  number(kNumbers[1], "write a checkpoint recovery-EPOCH-STEP every N steps of the run, too", "0: none");
  const std::array<const char*, 3> descriptions = {
      "write telemetry.json: curves, where time and memory go, copies and the numbers in each layer",
      "write an event file for TensorBoard: curves, and how the weights of the norms are spread",
      "write log.jsonl: what metrics.csv and summary.csv have, an object per line"};
  for (size_t i = 0; i < kSwitches.size(); ++i) {
    const Switch& option = kSwitches[i];
    const std::string name = fmt::format("--{}", option.name);
    add_switch(
        app, option.can_end ? fmt::format("{},!--no-{}", name, option.name) : name,
        [this, value = option.value](bool on) { this->*value = on; }, descriptions[i])
        .group("Running");
  }
}

void RunFiles::take_over(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "args.toml";
  if (!is_of_a_run(file)) {
    return;
  }
  for (const ConfigLine& line : read_config(kOp, file)) {
    for (const Switch& option : kSwitches) {
      if (line.name == option.name && option.goes_on && !(this->*option.value)) {
        check(line.on_or_off, kOp, "{}: {}: expected true or false, got {}", line.place, line.name, line.value);
        this->*option.value = line.value == "true";
      }
    }
    for (const Number& option : kNumbers) {
      if (line.name == option.name && !(this->*option.value)) {
        this->*option.value = number_of(line, option.range);
      }
    }
  }
}

std::string RunFiles::config_text() const {
  std::string text;
  for (const Switch& option : kSwitches) {
    text += (this->*option.value).value_or(false) ? fmt::format("{} = true\n", option.name) : "";
  }
  for (const Number& option : kNumbers) {
    const int64_t value = (this->*option.value).value_or(option.otherwise);
    text += value != option.otherwise ? fmt::format("{} = {}\n", option.name, value) : "";
  }
  return text;
}

train::KeepOptions RunFiles::keep() const {
  const train::KeepOptions defaults;
  return {.best = true,
          .history = checkpoint_hist.value_or(defaults.history),
          .recovery_interval = recovery_interval.value_or(defaults.recovery_interval)};
}

}  // namespace norma::cli
