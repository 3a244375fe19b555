#pragma once

#include "base/not_copied.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace norma {

/// A file that is read from front to back. Every file that a user names is opened here.
///
/// Only regular files, and links to them, are accepted: a pipe could block for ever, a device has no end.
class InputFile : NotCopied {
 public:
  /// `op` begins every error text. Throws Error "op: cannot open FILE: …" for a file that is not there, may not be
  /// read, is not a regular one or is larger than `limit` bytes.
  InputFile(std::string_view op, const std::filesystem::path& file, uint64_t limit);
  ~InputFile();

  /// The file's bytes when it was opened.
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Reads `count` bytes, fewer only at the end of the file, and returns how many. Throws Error "op: cannot read FILE:
  /// …".
  size_t read(void* bytes, size_t count);
  /// Reads what is left. Throws as read(), and Error for more than `limit` bytes.
  std::string read_rest();

  /// A path of the open file itself, whatever its name stands for by now: "/proc/self/fd/7".
  [[nodiscard]] std::string descriptor_path() const;

 private:
  std::string op_;
  std::string name_;
  uint64_t limit_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// The bytes of a whole file of at most `limit` bytes. Throws Error as InputFile does.
std::string read_text_file(std::string_view op, const std::filesystem::path& file, uint64_t limit);

}  // namespace norma
