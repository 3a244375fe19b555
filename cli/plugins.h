#pragma once

#include "nn/plugin_file.h"
#include "train/checkpoint.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// Loads the plug-ins of a command line, which has no name of the program in front, before there are options: the norms
/// that they register stand in the help, and their names are valid.
///
/// A plug-in is code. Those behind --plugin are loaded. Without any, `train` also loads what files name, and says so:
/// - the lines `plugin` of a --config file that belongs to the user; relative names are relative to its folder;
/// - what the checkpoint behind --resume records, where its folder belongs to the user and the library's SHA-256 is the
///   recorded one.
/// Whatever else a file names, and all of it with --dry-run, throws Error with the library, its SHA-256 and the reason.
void load_plugins(const std::vector<std::string>& words);

/// Throws Error "OP: norm 'my' comes from a plug-in, which is not loaded: add --plugin FILE,…" for a norm that nobody
/// has registered here and one of these plug-ins did, by the records of a run.
void check_norm_is_loaded(std::string_view op, const std::string& norm, const std::vector<nn::PluginRecord>& plugins);

/// What a checkpoint records of the plug-ins of its run.
std::vector<nn::PluginRecord> plugins_of(const train::Checkpoint& checkpoint, const std::filesystem::path& file);

}  // namespace norma::cli
