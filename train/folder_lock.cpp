#include "train/folder_lock.h"

#include "core/error.h"
#include "train/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>

namespace norma::train {

namespace {

/// The process that has written its number into the lock's file; "" when there is none to be read.
std::string holder(int descriptor) {
  std::array<char, 20> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  std::string number;
  for (ssize_t i = 0; i < length && std::isdigit(static_cast<unsigned char>(text[static_cast<size_t>(i)])) != 0; ++i) {
    number += text[static_cast<size_t>(i)];
  }
  return number;
}

/// True iff the name still stands for the open file: who held the lock before may have removed it.
bool is_named(int descriptor, const std::filesystem::path& file) {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor, &open) == 0 && ::stat(file.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(std::string_view op, const std::filesystem::path& folder) : file_(folder / ".norma-lock") {
  for (;;) {
    const int descriptor = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0) {
      cannot_write(op, file_, errno);
    }
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      const std::string process = holder(descriptor);
      ::close(descriptor);
      fail(op, "'{}' is being written by another process{}: wait for it, or choose another output folder",
           folder.string(), process.empty() ? "" : " (" + process + ")");
    }
    if (is_named(descriptor, file_)) {
      descriptor_ = descriptor;
      break;
    }
    ::close(descriptor);
  }
  const std::string process = std::to_string(::getpid()) + "\n";
  // For the other's error text only: a full disk does not matter.
  if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, process.data(), process.size(), 0) < 0) {
    errno = 0;
  }
}

FolderLock::~FolderLock() {
  ::unlink(file_.c_str());
  ::close(descriptor_);
}

}  // namespace norma::train
