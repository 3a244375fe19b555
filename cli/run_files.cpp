#include "cli/run_files.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "base/toml_lines.h"
#include "cli/options.h"
#include "session/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <type_traits>
#include <variant>

namespace norma::cli {

namespace {

constexpr const char* kOp = "train";

const RunOption* run_option(std::string_view name) {
  const auto found = std::ranges::find(run_options(), name, &RunOption::name);
  return found == run_options().end() ? nullptr : &*found;
}

/// A text or a number as a word of the command line; "" for any other value.
std::string word_of(const TomlScalar& value) {
  return std::visit(
      []<class T>(const T& its) {
        if constexpr (std::is_same_v<T, std::monostate> || std::is_same_v<T, bool>) {
          return std::string();
        } else {
          return fmt::format("{}", its);
        }
      },
      value);
}

/// The lines of a run's args.toml that stay valid when it is resumed; none if no run has written that file.
std::vector<ConfigLine> lines_that_go_on(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "args.toml";
  if (!is_of_a_run(file)) {
    return {};
  }
  std::vector<ConfigLine> lines = read_config(kOp, file);
  std::erase_if(lines, [](const ConfigLine& line) {
    const RunOption* option = run_option(line.name);
    return option == nullptr || option->from_file != FromFile::any_run;
  });
  return lines;
}

}  // namespace

std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file) {
  const TomlForm form{.line = "option = value", .key = "option", .max_line_bytes = 4000};
  std::vector<ConfigLine> result;
  for (const TomlLine& line : parse_toml_lines(op, read_text_file(op, file, kMaxTomlBytes), file.string(), form)) {
    ConfigLine& taken = result.emplace_back(ConfigLine{.name = line.key, .items = {}, .place = line.key_place});
    if (const auto* on = std::get_if<bool>(&line.value)) {
      taken.on_or_off = true;
      taken.items = {*on ? "true" : "false"};
      continue;
    }
    const std::vector<TomlScalar> values = line.list.value_or(std::vector{line.value});
    const bool are_words = !values.empty() && std::ranges::none_of(values, [](const TomlScalar& value) {
      return std::holds_alternative<std::monostate>(value) || std::holds_alternative<bool>(value);
    });
    check(are_words, op, "{}: {}: expected a text, a number, true, false or a list of texts or numbers",
          line.value_place, excerpt(line.key));
    std::ranges::transform(values, std::back_inserter(taken.items), word_of);
  }
  return result;
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
    const bool of_recipe = !line.empty() && line[0] != '#' && name != "plugin" && run_option(name) == nullptr;
    if (of_recipe && ("\n" + recipe_lines).find("\n" + line + "\n") == std::string::npos) {
      others.push_back(excerpt(line));
    }
  }
  return others;
}

}  // namespace norma::cli
