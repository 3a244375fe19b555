#include "cli/plugins.h"

#include "cli/config_file.h"
#include "cli/option.h"
#include "cli/run_files.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/quoting.h"
#include "nn/norm/factory.h"
#include "nn/plugin.h"
#include "train/checkpoint.h"
#include "train/environment.h"
#include "train/output.h"
#include "train/run_folder.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace norma::cli {

namespace {

constexpr const char* kOp = "train";
constexpr const char* kOption = "--plugin";

/// The items behind --plugin; empty: the words do not have it.
std::vector<std::string> given_plugins(const std::vector<std::string>& words) {
  const std::string option = kOption;
  std::string files;
  for (size_t i = 1; i < words.size(); ++i) {  // behind the subcommand
    if (words[i].starts_with(option + "=")) {
      files += (files.empty() ? "" : ",") + words[i].substr(option.size() + 1);
    } else if (words[i] == option) {
      for (; i + 1 < words.size() && !words[i + 1].starts_with("-"); ++i) {
        files += (files.empty() ? "" : ",") + words[i + 1];
      }
    }
  }
  return files.empty() ? std::vector<std::string>{} : split_list(files);
}

/// Why a file or folder may be somebody else's, as a text to stand behind its name; "": it is the user's alone.
std::string not_own(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return "cannot be looked at";
  }
  if (status.st_uid != ::geteuid()) {
    return "belongs to another user";
  }
  return (status.st_mode & S_IWOTH) != 0 ? "can be written by every user" : "";
}

/// The first of these that may be somebody else's, and why: "'runs/a' belongs to another user"; "": none.
std::string first_not_own(const std::vector<std::filesystem::path>& paths) {
  for (const std::filesystem::path& path : paths) {
    if (const std::string foreign = not_own(path); !foreign.empty()) {
      return fmt::format("'{}' {}", path.string(), foreign);
    }
  }
  return "";
}

/// Loads what a file names, unless there is a reason not to.
void load_named(const nn::PluginRecord& plugin, const std::string& by, const std::string& reason) {
  const std::filesystem::path library = plugin.file;
  const std::string against = reason.empty() ? first_not_own({library.parent_path(), library}) : reason;
  check(against.empty(), kOp, "{} names the plug-in {}, which is code and is not loaded, since {}: {} {} loads it", by,
        train::plugins_text({plugin}), against, kOption, plugin.file);
  train::say("plug-in {}, which {} names\n", train::plugins_text({plugin}), by);
  nn::load_plugin(plugin.file);
}

constexpr const char* kDryRun = "a dry run loads none that a file names";

/// The plug-ins of a --config file. False: it names none.
bool load_from_config(const std::filesystem::path& file, bool dry_run) {
  std::vector<std::string> names;
  for (const ConfigLine& line : read_config(kOp, file)) {
    if (line.name == "plugin") {
      names = split_list(line.value);
    }
    dry_run = dry_run || (line.name == "dry-run" && line.value != "false");
  }
  const std::string foreign = not_own(file);
  for (const std::string& name : names) {
    const nn::PluginRecord plugin = nn::read_plugin(std::filesystem::absolute(file).parent_path() / name);
    load_named(plugin, "'" + file.string() + "'", dry_run ? kDryRun : foreign.empty() ? "" : "that file " + foreign);
  }
  return !names.empty();
}

/// What the run behind --resume records; empty where there is nothing to be read, which the command itself complains
/// of.
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

void load_from_run(const std::filesystem::path& given, bool dry_run) {
  std::filesystem::path file;
  const std::vector<nn::PluginRecord> plugins = recorded_plugins(given, file);
  const std::filesystem::path folder = resumed_folder(given);
  const auto reason_against = [&](const nn::PluginRecord& plugin) -> std::string {
    if (dry_run) {
      return kDryRun;
    }
    if (const std::string foreign = first_not_own({folder, file}); !foreign.empty()) {
      return foreign;
    }
    if (!std::filesystem::path(plugin.file).is_absolute()) {
      return "its name is no absolute path";
    }
    const std::string sha256 = nn::read_plugin(plugin.file).sha256;
    return sha256 == plugin.sha256 ? "" : fmt::format("the file is another one now (sha256 {})", sha256);
  };
  for (const nn::PluginRecord& plugin : plugins) {
    load_named(plugin, "'" + file.string() + "'", reason_against(plugin));
  }
}

}  // namespace

std::vector<nn::PluginRecord> plugins_of(const train::Checkpoint& checkpoint, const std::filesystem::path& file) {
  const auto found = checkpoint.options.find(train::kPluginsKey);
  return found == checkpoint.options.end() ? std::vector<nn::PluginRecord>()
                                           : train::plugins_from_json(found->second, "train: " + file.string());
}

void check_norm_is_loaded(std::string_view op, const std::string& norm, const std::vector<nn::PluginRecord>& plugins) {
  const std::string name = norm.substr(0, norm.find_first_of(":["));
  const std::vector<std::string> known = nn::norm_names();
  if (std::ranges::find(known, name) != known.end()) {
    return;
  }
  std::vector<std::string> files;
  bool theirs = false;
  for (const nn::PluginRecord& plugin : plugins) {
    files.push_back(plugin.file);
    theirs = theirs || std::ranges::find(plugin.norms, name) != plugin.norms.end();
  }
  check(!theirs, op, "norm '{}' comes from a plug-in, which is not loaded: add --plugin {}", excerpt(name),
        shell_word(excerpt(fmt::format("{}", fmt::join(files, ",")), 1000)));
}

void load_plugins(const std::vector<std::string>& words) {
  const std::vector<std::string> given = given_plugins(words);
  for (const std::string& file : given) {
    if (!file.empty()) {  // the parser complains
      nn::load_plugin(file);
    }
  }
  if (!given.empty() || words.empty() || words.front() != kOp) {
    return;
  }
  // Whatever may mean it in one of the parser's spellings: --dry-run=1.
  const bool dry_run =
      std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("--dry-run"); });
  if (const std::string config = value_in(words, kConfigOption); !config.empty() && load_from_config(config, dry_run)) {
    return;
  }
  if (const std::string resume = value_in(words, "--resume"); !resume.empty()) {
    load_from_run(resume, dry_run);
  }
}

}  // namespace norma::cli
