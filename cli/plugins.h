#pragma once

#include "nn/plugin_file.h"
#include "train/checkpoint.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// Loads the plug-ins of a command line (without the program's name) before there are options, so that the help lists
/// their norms and the parser takes the names.
///
/// A plug-in is code. The command line loads one by --plugin FILE, or by FILE#sha256=DIGITS, which must have that
/// SHA-256. Without --plugin, `train` also loads the plug-ins that a --config file or the checkpoint of --resume
/// records, and says so. For that the record must have an absolute path and the library's SHA-256, and file and
/// library, each with its folder, must belong to the user and not be writable by a group or everyone. Any other plug-in
/// in a file, and any at all with --dry-run, throws Error with the library, its SHA-256 and the reason.
void load_plugins(const std::vector<std::string>& words);

/// The options that load plug-ins: " --plugin FILE", for each.
std::string plugin_words(const std::vector<nn::PluginRecord>& plugins);

/// A plug-in's record in args.toml: FILE#sha256=DIGITS.
std::string recorded_word(const nn::PluginRecord& plugin);

/// Throws Error "OP: norm 'my' comes from a plug-in, which is not loaded: add --plugin FILE …" for one of the norms of
/// a run, "" for none, that is not registered here, if one of the run's plug-ins registered it; else it was a program,
/// in whose language `option` of the command is `path`.
void check_norms_are_loaded(std::string_view op, const std::vector<std::string>& norms,
                            const std::vector<nn::PluginRecord>& plugins, const std::string& option,
                            const std::filesystem::path& path);

/// The plug-ins in a checkpoint's record of its run.
std::vector<nn::PluginRecord> plugins_of(const train::Checkpoint& checkpoint, const std::filesystem::path& file);

}  // namespace norma::cli
