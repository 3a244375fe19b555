#include "data/atomic_file.h"

#include "core/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace norma::data {

AtomicFile::AtomicFile(std::string op, std::filesystem::path file) : op_(std::move(op)), file_(std::move(file)) {
  static std::atomic<int> count = 0;  // so that two threads never share a temporary file
  temporary_ = file_;
  temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), count++);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail_with(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!committed_) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::fail_with(int error) const {
  fail(op_, "cannot write {}: {}", file_.string(), std::strerror(error));
}

void AtomicFile::write(const void* bytes, size_t count) {
  const auto* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, next, count);
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      fail_with(errno);
    }
    next += written;
    count -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  // Without this the name could survive a power cut and the bytes not.
  if (::fsync(descriptor_) != 0 || ::close(std::exchange(descriptor_, -1)) != 0) {
    fail_with(errno);
  }
  if (::rename(temporary_.c_str(), file_.c_str()) != 0) {
    fail_with(errno);
  }
  committed_ = true;
  // Also the folder's new entry; a file system that cannot do this is no reason to fail.
  const std::filesystem::path folder = file_.has_parent_path() ? file_.parent_path() : ".";
  const int folder_descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor >= 0) {
    ::fsync(folder_descriptor);
    ::close(folder_descriptor);
  }
}

}  // namespace norma::data
