#pragma once

#include "cli/config_file.h"
#include "train/run_output.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace norma::cli {

/// The first line of args.toml, by which such a file is known.
inline constexpr const char* kArgumentsHead = "# Options of a run: norma train --config args.toml";

/// What `norma train` writes beside last.safetensors and the tables: options of a run that do not change its result.
struct RunFiles {
  bool telemetry = false;
  bool tensorboard = false;
  bool log_json = false;
  int64_t checkpoint_hist = train::KeepOptions{}.history;
  int64_t recovery_interval = train::KeepOptions{}.recovery_interval;

  /// Adds the options.
  void add(CLI::App& app);
  /// Lines of args.toml: what is not as it is without options.
  [[nodiscard]] std::string config_text() const;
  [[nodiscard]] train::KeepOptions keep() const;
};

/// The folder of the run that `train --resume GIVEN` goes on with: GIVEN, or where that file lies.
std::filesystem::path resumed_folder(const std::filesystem::path& given);

/// Whether a file begins as the args.toml of a run does.
bool is_of_a_run(const std::filesystem::path& file);

/// Lines of the recipe in the args.toml of a run's folder that are none of these: somebody has changed them.
std::vector<std::string> other_lines(const std::filesystem::path& folder, const std::string& recipe_lines);

/// Lines of the files that the words of a command name, which hold where the words are silent, and the first file
/// before the second. Of `train --config FILE` all; of the args.toml of the run that `train --resume` goes on with what
/// is written beside its checkpoints (but for telemetry, whose file would be written over) and how it runs: its recipe
/// is in the checkpoint. Throws Error for a file that cannot be read.
std::vector<std::vector<ConfigLine>> lines_of_files(const std::string& command, const std::vector<std::string>& words);

}  // namespace norma::cli
