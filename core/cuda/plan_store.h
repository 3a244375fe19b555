#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace norma::cuda {

/// A file of choices that took time to make, such as the fastest plan of a convolution, for later processes.
///
/// Each choice is a line, "key<tab>value<tab>end". A process adds a line by one write, so that several may share the
/// file; the first line of a key counts, and a line that is not whole is passed over. A file that cannot be read or
/// written costs the time to choose again, and is no error.
class PlanStore {
 public:
  /// Reads the file. An empty path: choices are kept for this process alone.
  explicit PlanStore(std::filesystem::path file);

  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  /// Keeps the value, unless another process was first. Returns the one that counts. Throws Error where a text has a
  /// tab or a line's end in it.
  std::string add(const std::string& key, const std::string& value);

  /// $XDG_CACHE_HOME/norma/NAME, or $HOME/.cache/norma/NAME; empty where neither is set.
  static std::filesystem::path file_in_cache(const std::string& name);

 private:
  void read();

  std::filesystem::path file_;
  std::map<std::string, std::string> choices_;
};

}  // namespace norma::cuda
