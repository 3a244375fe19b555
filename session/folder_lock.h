#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace norma::train {

/// A folder for results. Files are written to it by its name. It is also held open, so that check_in_place() notices
/// when another folder has taken that name.
class HeldFolder {
 public:
  /// Throws Error "op: cannot write FOLDER: …" when it cannot be opened.
  HeldFolder(std::string_view op, std::filesystem::path folder);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

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
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int lock_ = -1;
};

}  // namespace norma::train
