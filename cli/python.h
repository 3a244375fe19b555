#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace norma::cli {

/// A folder for temporary files, which is removed with the object.
class ScratchFolder {
 public:
  /// A new one in TMPDIR. `op` begins the text of an Error.
  explicit ScratchFolder(const std::string& op);
  /// This one, made anew.
  ScratchFolder(const std::string& op, std::filesystem::path path);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a run of Python ended, and what it printed.
struct PythonRun {
  int code = 0;  ///< exit code; 127: there is no Python; 128 + the signal that ended it
  std::string out;
  std::string err;
};

/// Runs Python (NORMA_PYTHON, or python3 in PATH) with these arguments, as a process of its own, to its end. `op`
/// begins the text of an Error. A signal that comes meanwhile ends Python, and throws Interrupted.
PythonRun run_python(const std::string& op, const std::vector<std::string>& arguments);

}  // namespace norma::cli
