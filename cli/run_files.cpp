#include "cli/run_files.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "base/lists.h"
#include "base/quoting.h"
#include "base/toml_lines.h"
#include "cli/options.h"
#include "data/json.h"
#include "nn/norm/factory.h"
#include "nn/plugin.h"
#include "session/environment.h"
#include "session/output.h"
#include "session/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

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

constexpr const char* kOption = "--plugin";
constexpr std::string_view kHashMark = "#sha256=";

/// "'NAME' belongs to another user" or the like for a file or folder that may be somebody else's; "" if it is the
/// user's.
std::string not_own(const std::string& name, const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return fmt::format("'{}' cannot be looked at", name);
  }
  if (status.st_uid != ::geteuid()) {
    return fmt::format("'{}' belongs to another user", name);
  }
  return (status.st_mode & S_IWOTH) != 0   ? fmt::format("'{}' can be written by every user", name)
         : (status.st_mode & S_IWGRP) != 0 ? fmt::format("'{}' can be written by its group", name)
                                           : "";
}

/// A plug-in as a word or a file names it: FILE, or FILE#sha256=DIGITS.
nn::PluginRecord plugin_named(const std::string& text) {
  const size_t mark = text.rfind(kHashMark);
  if (mark == std::string::npos) {
    return {.file = text, .sha256 = ""};
  }
  const std::string digits = text.substr(mark + kHashMark.size());
  check(!digits.empty(), "plugin", "{}: expected the digits of a SHA-256 behind {}, got none", text, kHashMark);
  return {.file = text.substr(0, mark), .sha256 = digits};
}

/// Loads a plug-in of --plugin.
void load_given(const nn::PluginRecord& named) {
  if (named.sha256.empty()) {
    nn::load_plugin(named.file);
    return;
  }
  const nn::PluginFile library(named.file);
  check(library.record().sha256 == named.sha256, "plugin", "{}: expected a file with SHA-256 {}, got {}", named.file,
        excerpt(named.sha256), library.record().sha256);
  nn::load_plugin(library);
}

/// The reason not to load a library that the file `by` names; "" if it is the user's, with the recorded SHA-256.
std::string reason_against(const nn::PluginRecord& named, const nn::PluginFile& library,
                           const std::filesystem::path& by, bool dry_run) {
  const std::string& file = library.record().file;
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (dry_run) {
    return "a dry run loads none that a file names";
  }
  if (named.sha256.empty()) {
    return "no SHA-256 of it is recorded there";
  }
  if (!std::filesystem::path(named.file).is_absolute()) {
    return "its name there is no absolute path";
  }
  if (named.file != file) {  // as /proc/self/cwd/NAME does, which is another file in each folder
    return "its name there leads over links";
  }
  for (const std::string& foreign : {not_own(resumed_folder(by), resumed_folder(by)), not_own(by, by),
                                     not_own(folder, folder), not_own(file, library.descriptor_path())}) {
    if (!foreign.empty()) {
      return foreign;
    }
  }
  return named.sha256 == library.record().sha256 ? "" : "the recorded SHA-256 is " + excerpt(named.sha256);
}

/// Loads the plug-ins that the file `by` names. Throws Error if there is a reason against one of them.
void load_named(const std::vector<nn::PluginRecord>& plugins, const std::filesystem::path& by, bool dry_run) {
  std::vector<std::unique_ptr<nn::PluginFile>> libraries;
  std::vector<nn::PluginRecord> all;
  for (const nn::PluginRecord& named : plugins) {
    libraries.push_back(std::make_unique<nn::PluginFile>(std::filesystem::absolute(by).parent_path() / named.file));
    all.push_back(libraries.back()->record());
  }
  for (size_t i = 0; i < plugins.size(); ++i) {
    const std::string against = reason_against(plugins[i], *libraries[i], by, dry_run);
    check(against.empty(), kOp, "'{}' names the plug-in {}, which is code and is not loaded, since {}:{} loads it",
          by.string(), train::plugins_text({all[i]}), against, plugin_words(all));
  }
  for (const auto& library : libraries) {
    train::say("plug-in {}, which '{}' names\n", train::plugins_text({library->record()}), by.string());
    nn::load_plugin(*library);
  }
}

/// The plug-ins that a --config file names.
std::vector<nn::PluginRecord> configured_plugins(const std::filesystem::path& file, bool& dry_run) {
  std::vector<nn::PluginRecord> plugins;
  for (const ConfigLine& line : read_config(kOp, file)) {
    if (line.name == "plugin") {
      std::ranges::transform(line.items, std::back_inserter(plugins), plugin_named);
    }
    dry_run = dry_run || (line.name == "dry-run" && line.value() != "false");
  }
  return plugins;
}

/// The plug-ins that the run of --resume records; empty if there is nothing to read: the command itself reports that.
std::vector<nn::PluginRecord> recorded_plugins(const std::filesystem::path& given, std::filesystem::path& file) {
  try {
    std::vector<std::string> warnings;
    file = train::is_folder(kOp, given) ? train::newest_checkpoint(given, warnings) : given;
    const train::Checkpoint head = train::load_checkpoint_metadata(file);
    return plugins_of(head, file);
  } catch (const Error&) {
    return {};
  }
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
    taken.items = mapped(values, toml_word);
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

std::vector<nn::PluginRecord> plugins_of(const train::Checkpoint& checkpoint, const std::filesystem::path& file) {
  return train::plugins_from_json(checkpoint.option(train::kPluginsKey).value_or("[]"), "train: " + file.string());
}

std::string plugin_words(const std::vector<nn::PluginRecord>& plugins) {
  constexpr size_t kLongest = 4096;  // of a path that a system can open
  std::string text;
  for (const nn::PluginRecord& plugin : plugins) {
    text += fmt::format(" {} {}", kOption, shell_word(excerpt(plugin.file, kLongest)));
  }
  return text;
}

std::string recorded_word(const nn::PluginRecord& plugin) {
  return plugin.file + std::string(kHashMark) + plugin.sha256;
}

void check_norms_are_loaded(std::string_view op, const std::vector<std::string>& norms,
                            const std::vector<nn::PluginRecord>& plugins, const std::string& option,
                            const std::filesystem::path& path) {
  const std::vector<std::string> known = nn::norm_names();
  for (const std::string& norm : norms) {
    const std::string name = norm.substr(0, norm.find_first_of(":[/"));
    if (norm.empty() || is_in(known, name)) {
      continue;
    }
    const bool theirs =
        std::ranges::any_of(plugins, [&](const nn::PluginRecord& plugin) { return is_in(plugin.norms, name); });
    check(!theirs, op, "norm '{}' comes from a plug-in, which is not loaded: add{}", excerpt(name),
          plugin_words(plugins));
    fail(op,
         "norm '{}' is none of Norma's, and of no plug-in of the run: a program has registered it. In Python, where "
         "it is registered: norma.run(\"{}\", {}={})",
         excerpt(name), op, option, data::json_text(nlohmann::json(path.string())));
  }
}

void load_plugins(const std::vector<std::string>& words) {
  if (!words.empty() && words.front() == "completion") {
    return;  // its words may be those of another command, which a user has not started yet
  }
  const std::vector<std::string> given = values_in(words, kOption);
  for (const std::string& text : given) {
    if (!text.empty()) {  // the parser reports it
      load_given(plugin_named(text));
    }
  }
  if (!given.empty() || words.empty() || words.front() != kOp) {
    return;
  }
  bool dry_run = std::ranges::any_of(
      words, [](const std::string& word) { return word.starts_with("--dry-run") && word != "--dry-run=false"; });
  std::filesystem::path by = value_in(words, kConfigOption);
  std::vector<nn::PluginRecord> plugins =
      by.empty() ? std::vector<nn::PluginRecord>() : configured_plugins(by, dry_run);
  if (const std::string resume = value_in(words, "--resume"); plugins.empty() && !resume.empty()) {
    plugins = recorded_plugins(resume, by);
  }
  load_named(plugins, by, dry_run);
}

}  // namespace norma::cli
