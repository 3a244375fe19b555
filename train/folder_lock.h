#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace norma::train {

/// While one lives, no other process gets one of the same folder: for what writes its results there. It is a lock of
/// the system on the file ".norma-lock", which ends with the process, however that ends.
class FolderLock {
 public:
  /// Throws Error "op: 'FOLDER' is being written by another process (PID)", and Error when the folder cannot be
  /// written. A file system without locks lets everybody in.
  FolderLock(std::string_view op, const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace norma::train
