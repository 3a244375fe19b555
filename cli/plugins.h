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
/// A plug-in is code. Those behind --plugin are loaded: FILE, or FILE#sha256=DIGITS, which has to have that SHA-256.
/// Without any, `train` also loads what a --config file or the checkpoint behind --resume records, and says so. The
/// record has to have an absolute path and the SHA-256 that the library has, and file and library, each with its
/// folder, have to belong to the user. Whatever else a file names, and all of it with --dry-run, throws Error with the
/// library, its SHA-256 and the reason.
void load_plugins(const std::vector<std::string>& words);

/// How args.toml records a plug-in: FILE#sha256=DIGITS.
std::string recorded_word(const nn::PluginRecord& plugin);

/// Throws Error "OP: norm 'my' comes from a plug-in, which is not loaded: add --plugin FILE,…" for a norm that nobody
/// has registered here and one of these plug-ins did, by the records of a run.
void check_norm_is_loaded(std::string_view op, const std::string& norm, const std::vector<nn::PluginRecord>& plugins);

/// What a checkpoint records of the plug-ins of its run.
std::vector<nn::PluginRecord> plugins_of(const train::Checkpoint& checkpoint, const std::filesystem::path& file);

}  // namespace norma::cli
