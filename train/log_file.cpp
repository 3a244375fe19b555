#include "train/log_file.h"

#include "core/input_file.h"
#include "train/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <sstream>
#include <utility>

namespace norma::train {

std::vector<std::string> whole_lines(std::string_view op, const std::filesystem::path& file) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  std::vector<std::string> lines;
  if (!path_exists(op, file)) {
    return lines;
  }
  std::istringstream in(read_text_file(op, file, kMaxBytes));
  std::string line;
  while (std::getline(in, line) && !in.eof()) {
    lines.push_back(line);
  }
  return lines;
}

LogFile::LogFile(std::string op, std::filesystem::path file, const std::vector<std::string>& lines)
    : op_(std::move(op)), path_(std::move(file)) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + "\n";
  }
  write_text_file(op_, path_, text);
  // The file exists now. If it had to be made, the folder would be another one that has taken this one's place.
  const int descriptor = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) {
    cannot_write(op_, path_, errno);
  }
  file_.reset(::fdopen(descriptor, "a"));
  if (!file_) {
    const int error = errno;
    ::close(descriptor);
    cannot_write(op_, path_, error);
  }
}

void LogFile::add(const std::string& line) {
  if (std::fputs(line.c_str(), file_.get()) == EOF || std::fputc('\n', file_.get()) == EOF ||
      std::fflush(file_.get()) != 0) {
    cannot_write(op_, path_, errno);
  }
}

}  // namespace norma::train
