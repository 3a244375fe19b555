#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// The lines of a log that may have been cut while it was written, without a last line that has no end. None for a file
/// that does not exist. Throws Error "op: …" for one that cannot be read.
std::vector<std::string> whole_lines(std::string_view op, const std::filesystem::path& file);

/// A text file that grows by lines. The system has each line when add() returns.
class LogFile {
 public:
  /// Replaces the file, if there is one, by these lines: by all of them, or it stays as it was. Throws Error that names
  /// it when it cannot be written, as add() does.
  LogFile(std::string op, std::filesystem::path file, const std::vector<std::string>& lines);
  void add(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string op_;
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace norma::train
