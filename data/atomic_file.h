#pragma once

#include "base/not_copied.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace norma::data {

/// True iff something has that name; false also if a part of its path is missing. Throws Error "op: cannot read FILE: "
/// and the system's text if that cannot be found out: a loop of symbolic links, a folder without permission.
bool path_exists(std::string_view op, const std::filesystem::path& path);
/// True iff a folder has that name; throws likewise.
bool is_folder(std::string_view op, const std::filesystem::path& path);
/// Throws Error "op: FOLDER: no such folder" unless it is one, and as is_folder().
void check_folder(std::string_view op, const std::filesystem::path& folder);
/// Throws Error for an output file (`option` gave it) whose name something has, be it a link that leads nowhere.
void check_new(std::string_view op, std::string_view option, const std::filesystem::path& file);

/// A file that appears under its name as a whole or not at all. Until commit() the bytes go to a temporary file in the
/// same folder, "NAME.PROCESS-NUMBER.tmp". It replaces what had the name before, and nothing that came
/// meanwhile. The destructor removes it if there was no commit(); if the process was
/// killed, the next AtomicFile of the same name does. If the name is a symbolic link, its target is written; a link
/// that leads nowhere is replaced by the file.
class AtomicFile : NotCopied {
 public:
  /// `op` begins every error text. Throws Error that names the file when the folder cannot be written, or when
  /// something other than a file has the name.
  AtomicFile(std::string op, std::filesystem::path file);
  ~AtomicFile();

  /// Appends. Throws Error when the disk is full or fails.
  void write(const void* bytes, size_t count);
  /// Waits until all is on the disk, then renames. Throws Error, also where a new file has the name by now.
  void commit();

 private:
  [[noreturn]] void fail_with(int error) const;

  std::string op_;
  std::filesystem::path file_;
  std::filesystem::path target_;  ///< file_, without a symbolic link at its end
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool replaces_ = false;  ///< something had the name before
  bool committed_ = false;
};

/// Gives a file, which is replaced and never changed, a second name in the same folder. Another file of that name is
/// replaced as a whole. On a file system without hard links the second name is a copy. `op` begins every error text.
/// Throws Error that names the file.
void link_file(const std::string& op, const std::filesystem::path& file, const std::filesystem::path& name);

}  // namespace norma::data
