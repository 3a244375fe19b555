#pragma once

#include "train/kept_checkpoints.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace norma::cli {

/// The first line of args.toml, by which such a file is known.
inline constexpr const char* kArgumentsHead = "# Options of a run: norma train --config args.toml";

/// What `norma train` writes beside last.safetensors and the tables: options of a run that do not change its result.
struct RunFiles {
  std::optional<bool> telemetry = {};
  std::optional<bool> tensorboard = {};
  std::optional<bool> log_json = {};
  std::optional<int64_t> checkpoint_hist = {};
  std::optional<int64_t> recovery_interval = {};

  /// Adds the options; a value that is not given stays empty.
  void add(CLI::App& app);
  /// What is empty, as the args.toml in this folder has it, where there is one that a run wrote; but for telemetry,
  /// whose file would be written over. Throws Error for one that cannot be read.
  void take_over(const std::filesystem::path& folder);
  /// Lines of args.toml.
  [[nodiscard]] std::string config_text() const;
  [[nodiscard]] train::KeepOptions keep() const;
};

}  // namespace norma::cli
