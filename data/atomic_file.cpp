#include "data/atomic_file.h"

#include "base/error.h"
#include "base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <regex>
#include <system_error>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

constexpr std::string_view kSuffix = ".tmp";

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

/// True for the name of a temporary file of `target`: "last.safetensors.4711-0.tmp", by process 4711.
bool is_temporary_of(std::string_view name, std::string_view target) {
  static const std::regex numbers(R"(\.[1-9]\d*-\d+\.tmp)");
  return name.starts_with(target) && std::regex_match(name.begin() + target.size(), name.end(), numbers);
}

/// Removes a temporary file unless somebody is writing it.
void remove_if_abandoned(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor >= 0) {
    // Only the writer's lock decides. The process may be on another host or in another container, where it is not seen,
    // and another process may have its number by now.
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      ::unlink(file.c_str());
    }
    ::close(descriptor);
  }
}

/// Removes the temporary files that killed processes left beside `file`.
void remove_abandoned(const std::filesystem::path& file) {
  const std::string target = file.filename().string();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_of(file), error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_temporary_of(entry->path().filename().string(), target)) {
      remove_if_abandoned(entry->path());
    }
  }
}

/// A new file that no other process takes for an abandoned one; -1 with errno when it cannot be made.
int create_locked(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return -1;
  }
  // A file system without locks is no reason to fail.
  const bool taken = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  struct stat status {};
  if (taken || (::fstat(descriptor, &status) == 0 && status.st_nlink == 0)) {
    ::close(descriptor);  // another process took it for abandoned before the lock was there
    errno = EEXIST;
    return -1;
  }
  return descriptor;
}

/// A name for a temporary file of `target` that no other thread or process uses.
std::filesystem::path temporary_name(const std::filesystem::path& target) {
  static std::atomic<int> count = 0;
  std::filesystem::path name = target;
  name += fmt::format(".{}-{}{}", ::getpid(), count++, kSuffix);
  return name;
}

/// Brings the folder's new entry to the disk; a file system that cannot do this is no reason to fail.
void sync_folder_of(const std::filesystem::path& file) {
  const int descriptor = ::open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

std::filesystem::file_status status_of(std::string_view op, const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  check(status.type() != std::filesystem::file_type::none, op, "cannot read {}: {}", path.string(),
        std::strerror(error.value()));
  return status;
}

/// Gives the file a name that nothing has; false with errno where something has it. Some file systems can only link.
bool rename_to_new(const char* file, const char* name) {
  if (::renameat2(AT_FDCWD, file, AT_FDCWD, name, RENAME_NOREPLACE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS) {
    return ::link(file, name) == 0 ? ::unlink(file) == 0 : errno != EEXIST && ::rename(file, name) == 0;
  }
  return false;
}

}  // namespace

bool path_exists(std::string_view op, const std::filesystem::path& path) {
  return std::filesystem::exists(status_of(op, path));
}

bool is_folder(std::string_view op, const std::filesystem::path& path) {
  return std::filesystem::is_directory(status_of(op, path));
}

void check_folder(std::string_view op, const std::filesystem::path& folder) {
  check(is_folder(op, folder), op, "{}: no such folder", folder.string());
}

void check_new(std::string_view op, std::string_view option, const std::filesystem::path& file) {
  std::error_code none;
  check(!std::filesystem::is_symlink(file, none) && !path_exists(op, file), op,
        "{}: expected a name that is not taken, got '{}'", option, file.string());
}

AtomicFile::AtomicFile(std::string op, std::filesystem::path file) : op_(std::move(op)), file_(std::move(file)) {
  std::error_code error;
  if (std::filesystem::is_symlink(file_, error)) {
    // The link's target is replaced, not the link.
    if (std::filesystem::path target = std::filesystem::canonical(file_, error); !error) {
      target_ = std::move(target);
    }
  }
  if (target_.empty()) {
    target_ = file_;
  }
  struct stat status {};
  replaces_ = ::lstat(target_.c_str(), &status) == 0;
  if (::stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    check(!S_ISDIR(status.st_mode), op_, "cannot write {}: {}", file_.string(), std::strerror(EISDIR));
    fail(op_, "cannot write {}: expected a regular file or none, got another kind", file_.string());
  }
  remove_abandoned(target_);
  do {
    temporary_ = temporary_name(target_);
    descriptor_ = create_locked(temporary_);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) {
    fail_with(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) {
    ::unlink(temporary_.c_str());
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
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
  // Without this a power cut could keep the name and lose the bytes.
  if (::fsync(descriptor_) != 0) {
    fail_with(errno);
  }
  // The rename comes before the file is closed, since closing ends the lock.
  if (!(replaces_ ? ::rename(temporary_.c_str(), target_.c_str()) == 0
                  : rename_to_new(temporary_.c_str(), target_.c_str()))) {
    fail_with(errno);
  }
  committed_ = true;
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail_with(errno);
  }
  sync_folder_of(target_);
}

void link_file(const std::string& op, const std::filesystem::path& file, const std::filesystem::path& name) {
  remove_abandoned(name);
  std::filesystem::path temporary = temporary_name(name);
  // A symbolic link is followed: the link itself would show whatever is written there next.
  while (::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno != EEXIST) {
      AtomicFile copy(op, name);
      InputFile input(op, file, UINT64_MAX);
      std::vector<char> bytes(size_t{1} << 20);
      while (const size_t count = input.read(bytes.data(), bytes.size())) {
        copy.write(bytes.data(), count);
      }
      copy.commit();
      return;
    }
    temporary = temporary_name(name);
  }
  const int error = ::rename(temporary.c_str(), name.c_str()) == 0 ? 0 : errno;
  ::unlink(temporary.c_str());  // it is still there if the rename failed, or if both were names of one file
  check(error == 0, op, "cannot write {}: {}", name.string(), std::strerror(error));
  sync_folder_of(name);
}

}  // namespace norma::data
