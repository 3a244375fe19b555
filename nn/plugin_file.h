#pragma once

#include "base/input_file.h"

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

/// The file of a plug-in, open and checked, and its bytes. Nothing of it is loaded.
class PluginFile {
 public:
  /// Throws Error for a file that cannot be read, is not a regular one, is no shared library for this machine, or ends
  /// early: the system's loader would wait for ever or crash.
  explicit PluginFile(const std::filesystem::path& file);

  /// The record of the bytes. Its norms are empty until it is loaded.
  [[nodiscard]] const PluginRecord& record() const { return record_; }
  /// A path of the open file itself, whatever its name stands for by now.
  [[nodiscard]] std::string descriptor_path() const { return input_.descriptor_path(); }
  /// A copy of the bytes in memory that nobody can change, and its path. It stays until the process ends. Throws Error.
  [[nodiscard]] std::string sealed_path() const;

 private:
  InputFile input_;
  std::string bytes_;
  PluginRecord record_;
};

}  // namespace norma::nn
