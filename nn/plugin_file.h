#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace norma::nn {

/// A plug-in as results and checkpoints record it.
struct PluginRecord {
  std::string file;                     ///< absolute
  std::string sha256;                   ///< of its bytes, as 64 hexadecimal digits
  std::vector<std::string> norms = {};  ///< the norms that it registered
};

/// Reads the file of a plug-in, and loads nothing. Throws Error for a file that cannot be read, is not a regular one,
/// is no shared library for this machine, or ends early: the system's loader would wait for ever or crash.
PluginRecord read_plugin(const std::filesystem::path& file);

}  // namespace norma::nn
