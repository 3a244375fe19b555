#pragma once

#include "base/excerpt.h"
#include "base/not_copied.h"
#include "data/atomic_file.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace norma::train {

/// Writes to a stream and flushes it. A failure (a full disk, a pipe without reader) must not cost the work of hours:
/// it does not throw, and the first one is kept for output_error().
void put(std::FILE* out, std::string_view text);

/// From now on put() gives its text to `sink`, which must not throw; without one it writes again. A sink that does
/// nothing mutes a process.
void redirect(std::function<void(std::FILE* out, std::string_view text)> sink);

/// put() to the standard output, as plain_text(), since names in the text may be anybody's.
template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  put(stdout, plain_text(fmt::format(text, std::forward<Args>(args)...)));
}

/// Likewise to the standard error, on a line of its own: "norma: train: warning: …".
template <class... Args>
void warn(std::string_view op, fmt::format_string<Args...> text, Args&&... args) {
  put(stderr,
      fmt::format("norma: {}: warning: {}\n", op, excerpt(fmt::format(text, std::forward<Args>(args)...), 10000)));
}

/// A stream that is closed at its end.
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

/// The errno of the first put() that failed; 0 if none did.
int output_error();

using data::check_new;
using data::is_folder;
using data::path_exists;

/// Throws Error "op: cannot write FILE: " and the system's text for `error`, a value of errno.
[[noreturn]] void cannot_write(std::string_view op, const std::filesystem::path& file, int error);

/// Makes a folder and those above it, and tests that a file can be made in it. Throws as cannot_write().
void make_output_folder(std::string_view op, const std::filesystem::path& folder);

/// True iff all files in a folder, if it is there, have names that begin so: nothing but what a killed command left.
bool holds_only(const std::filesystem::path& folder, std::initializer_list<std::string_view> beginnings);

/// A path for a line that is printed: on one line, whatever its name has.
std::string shown(const std::filesystem::path& path);

/// Throws Error when one of the files to be written into a folder exists already.
void check_free(std::string_view op, const std::filesystem::path& folder, std::initializer_list<const char*> names);

/// Throws Error when a file of this name exists and may not be replaced: is_former() decides by its first bytes. `kind`
/// is for the text: "a result of 'norma bench'". An empty file may be replaced.
void check_replaceable(std::string_view op, const std::filesystem::path& file, std::string_view kind,
                       const std::function<bool(std::string_view beginning)>& is_former);

/// Throws Error when `output`, to be written, is the same file as `input`, by whatever names and links, existing or
/// not. `output_name` and `input_name` are the options that gave the two: "--output".
void check_other_file(std::string_view op, std::string_view output_name, const std::filesystem::path& output,
                      std::string_view input_name, const std::filesystem::path& input);

/// Writes a whole text file under a temporary name first, so that a file of this name is replaced by all of `text` or
/// stays as it was. Throws as cannot_write().
void write_text_file(std::string_view op, const std::filesystem::path& file, std::string_view text);

/// A folder for results. Files are written to it by its name. It is also held open, so that check_in_place() notices
/// when another folder has taken that name.
class HeldFolder : NotCopied {
 public:
  /// Throws Error "op: cannot write FOLDER: …" when it cannot be opened.
  HeldFolder(std::string_view op, std::filesystem::path folder);
  ~HeldFolder();

  /// Call it before each write. Throws Error "op: 'FOLDER' was moved or removed …" when the name stands for another
  /// folder, or none.
  void check_in_place() const;
  /// Writes a file into the folder, as write_text_file(), after check_in_place().
  void write_text(const std::string& name, std::string_view text) const;
  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  std::string op_;
  std::filesystem::path folder_;
  int descriptor_ = -1;
};

/// The file of a FolderLock. A process that is killed leaves it.
inline constexpr const char* kLockName = ".norma-lock";

/// While one lives, no other process gets one for the same folder. It is a lock of the system on the file kLockName,
/// which ends with the process, however that ends.
class FolderLock : public HeldFolder {
 public:
  /// Throws Error "op: 'FOLDER' is being written by another process (PID)", and Error when the folder cannot be
  /// written. A file system without locks lets every process in.
  FolderLock(std::string_view op, const std::filesystem::path& folder);
  /// For results in files of these names: makes the folder, too. Throws Error as check_free() and make_output_folder().
  FolderLock(std::string_view op, const std::filesystem::path& folder, std::initializer_list<const char*> names);
  ~FolderLock();

 private:
  int lock_ = -1;
};

}  // namespace norma::train
