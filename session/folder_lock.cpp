#include "session/folder_lock.h"

#include "base/error.h"
#include "session/output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <utility>

namespace norma::train {

namespace {

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// The process whose number is in the lock's file; "" if none can be read.
std::string holder(int descriptor) {
  std::array<char, 20> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  std::string number;
  for (ssize_t i = 0; i < length && std::isdigit(static_cast<unsigned char>(text[static_cast<size_t>(i)])) != 0; ++i) {
    number += text[static_cast<size_t>(i)];
  }
  return number;
}

/// True iff the name still stands for the open file: an earlier holder of the lock may have removed it.
bool is_named(int descriptor, int folder) {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor, &open) == 0 && ::fstatat(folder, kLockName, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         is_same(open, named);
}

}  // namespace

HeldFolder::HeldFolder(std::string_view op, std::filesystem::path folder)
    : op_(op),
      folder_(std::move(folder)),
      descriptor_(::open(folder_.empty() ? "." : folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) {
    cannot_write(op_, folder_, errno);
  }
}

HeldFolder::~HeldFolder() {
  ::close(descriptor_);
}

void HeldFolder::check_in_place() const {
  struct stat held {};
  struct stat named {};
  check(::fstat(descriptor_, &held) == 0 && ::stat(folder_.empty() ? "." : folder_.c_str(), &named) == 0 &&
            is_same(held, named),
        op_, "'{}' was moved or removed while results were written into it: nothing more is written", folder_.string());
}

void HeldFolder::write_text(const std::string& name, std::string_view text) const {
  check_in_place();
  write_text_file(op_, folder_ / name, text);
}

FolderLock::FolderLock(std::string_view op, const std::filesystem::path& folder) : HeldFolder(op, folder) {
  for (;;) {
    const int opened = ::openat(descriptor(), kLockName, O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (opened < 0) {
      cannot_write(op, folder / kLockName, errno);
    }
    if (::flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      const std::string process = holder(opened);
      ::close(opened);
      fail(op, "'{}' is being written by another process{}: wait for it, or choose another output folder",
           folder.string(), process.empty() ? "" : " (" + process + ")");
    }
    if (is_named(opened, descriptor())) {
      lock_ = opened;
      break;
    }
    ::close(opened);
  }
  const std::string process = std::to_string(::getpid()) + "\n";
  // Only the other process' error text needs it: a full disk does not matter.
  if (::ftruncate(lock_, 0) == 0 && ::pwrite(lock_, process.data(), process.size(), 0) < 0) {
    errno = 0;
  }
}

FolderLock::~FolderLock() {
  if (is_named(lock_, descriptor())) {
    ::unlinkat(descriptor(), kLockName, 0);
  }
  ::close(lock_);
}

}  // namespace norma::train
