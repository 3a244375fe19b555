#pragma once

#include "cli/option.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// The lines of a TOML file without tables, in its order: `batch-size = 128`, `flip = true`, `norms = ["batch",
/// "group:8"]`. Throws Error of `op` that names file, line and column for a file that cannot be read, for invalid TOML,
/// and for a value that no option can have.
std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file);

/// The first line of args.toml, which identifies such a file.
inline constexpr const char* kArgumentsHead = "# Options of a run: norma train --config args.toml";

/// The folder of the run that `train --resume GIVEN` continues: GIVEN itself, or the folder of that file.
std::filesystem::path resumed_folder(const std::filesystem::path& given);

/// True iff a file begins as the args.toml of a run does.
bool is_of_a_run(const std::filesystem::path& file);

/// The recipe's lines in the args.toml of a run's folder that are not in `recipe_lines`: somebody has changed them.
std::vector<std::string> other_lines(const std::filesystem::path& folder, const std::string& recipe_lines);

/// The options in the files that the words of a command name. The words take precedence over the files, and the first
/// file over the second. `train --config FILE` gives all lines. `train --resume` gives the lines of the run's args.toml
/// on how it runs and on the files beside its checkpoints (but not telemetry and dynamics, whose file would be
/// overwritten); its recipe is in the checkpoint. Throws Error for a file that cannot be read.
std::vector<std::vector<ConfigLine>> lines_of_files(const std::string& command, const std::vector<std::string>& words);

}  // namespace norma::cli
