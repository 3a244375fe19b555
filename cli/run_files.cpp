#include "cli/run_files.h"

#include "cli/options.h"
#include "core/excerpt.h"
#include "session/output.h"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace norma::cli {

namespace {

constexpr const char* kOp = "train";

const RunOption* run_option(std::string_view name) {
  const auto found = std::ranges::find(run_options(), name, &RunOption::name);
  return found == run_options().end() ? nullptr : &*found;
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
