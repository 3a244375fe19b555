#pragma once

#include <string>
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

}  // namespace norma::cli
