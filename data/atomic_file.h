#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace norma::data {

/// A file that appears under its name as a whole or not at all. Until commit() the bytes go to a temporary file in the
/// same folder; the destructor removes it when there was no commit().
class AtomicFile {
 public:
  /// `op` begins every error text. Throws Error that names the file when the folder cannot be written.
  AtomicFile(std::string op, std::filesystem::path file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Throws Error when the disk is full or fails.
  void write(const void* bytes, size_t count);
  /// Waits until all is on the disk, then renames. Throws Error.
  void commit();

 private:
  [[noreturn]] void fail_with(int error) const;

  std::string op_;
  std::filesystem::path file_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace norma::data
