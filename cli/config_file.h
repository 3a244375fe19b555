#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// One line of a configuration file: an option and what would stand behind it on the command line.
struct ConfigLine {
  std::string name;        ///< of the option without its dashes: "batch-size"
  std::string value;       ///< the items of an array with commas between them
  bool on_or_off = false;  ///< the value is "true" or "false" of TOML, as switches have them
  std::string place;       ///< "r50.toml:2:1", for error texts
};

/// The lines of a TOML file without tables, in its order: `batch-size = 128`, `flip = true`, `norms = ["batch",
/// "group:8"]`. Throws Error of `op` that names file, line and column for a file that cannot be read, for text that is
/// no TOML, and for a value that no option can have.
std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file);

}  // namespace norma::cli
