#include "session/output.h"

#include "base/error.h"
#include "base/input_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>

namespace norma::train {

namespace {

std::atomic<int> first_error = 0;
std::mutex mutex;  // for the next
std::function<void(std::FILE*, std::string_view)> redirected;

std::function<void(std::FILE*, std::string_view)> current_sink() {
  const std::lock_guard lock(mutex);
  return redirected;
}

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

void redirect(std::function<void(std::FILE* out, std::string_view text)> sink) {
  const std::lock_guard lock(mutex);
  redirected = std::move(sink);
}

void put(std::FILE* out, std::string_view text) {
  if (const auto sink = current_sink()) {  // called without the lock, as it may wait for another thread
    sink(out, text);
    return;
  }
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0) {
    int none = 0;
    first_error.compare_exchange_strong(none, errno != 0 ? errno : EIO);
  }
}

int output_error() {
  return first_error;
}

void cannot_write(std::string_view op, const std::filesystem::path& file, int error) {
  fail(op, "cannot write {}: {}", file.string(), std::strerror(error));
}

void make_output_folder(std::string_view op, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    cannot_write(op, folder, error.value());
  }
  // A file without a name: a process that is killed here leaves nothing, and no link of the user is followed.
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor >= 0) {
    ::close(descriptor);
    return;
  }
  const int reason = errno;
  const bool unknown = reason == EOPNOTSUPP || reason == EISDIR;  // to the file system, or to the system
  if (!unknown || ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    cannot_write(op, folder, unknown ? errno : reason);
  }
}

bool holds_only(const std::filesystem::path& folder, std::initializer_list<std::string_view> beginnings) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!entry->is_regular_file(error) ||
        std::ranges::none_of(beginnings, [&](std::string_view beginning) { return name.starts_with(beginning); })) {
      return false;
    }
  }
  return true;
}

std::string shown(const std::filesystem::path& path) {
  constexpr size_t kLongest = 4096;  // that a system can open
  return excerpt(path.string(), kLongest);
}

void check_free(std::string_view op, const std::filesystem::path& folder, std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* name : names) {
    const auto status = std::filesystem::symlink_status(folder / name, error);
    check(!std::filesystem::exists(status), op, "'{}' holds other results ({}): choose another output folder",
          folder.string(), name);
  }
}

void check_replaceable(std::string_view op, const std::filesystem::path& file, std::string_view kind,
                       const std::function<bool(std::string_view beginning)>& is_former) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    return;
  }
  constexpr uint64_t kAnySize = UINT64_MAX;
  std::array<char, 4096> bytes{};
  InputFile input(op, file, kAnySize);
  const size_t count = input.read(bytes.data(), bytes.size());
  check(count == 0 || is_former(std::string_view(bytes.data(), count)), op,
        "'{}' is not {}: remove it, or choose another name", file.string(), kind);
}

void check_other_file(std::string_view op, std::string_view output_name, const std::filesystem::path& output,
                      std::string_view input_name, const std::filesystem::path& input) {
  std::error_code error;
  const auto full = [&](std::filesystem::path file) {
    constexpr int kMostLinks = 40;  // the system's limit
    for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i) {
      file = file.parent_path() / std::filesystem::read_symlink(file, error);
    }
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file, error), error);
  };
  // equivalent() finds further names of an existing file; comparing full names works for files that do not exist yet.
  const bool same = std::filesystem::equivalent(output, input, error) || full(output) == full(input);
  check(!same, op, "{}: expected another file than that of {}, got '{}'", output_name, input_name, output.string());
}

void write_text_file(std::string_view op, const std::filesystem::path& file, std::string_view text) {
  data::AtomicFile out(std::string(op), file);
  out.write(text.data(), text.size());
  out.commit();
}

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

namespace {

const std::filesystem::path& made_free(std::string_view op, const std::filesystem::path& folder,
                                       std::initializer_list<const char*> names) {
  check_free(op, folder, names);
  make_output_folder(op, folder);
  return folder;
}

}  // namespace

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

FolderLock::FolderLock(std::string_view op, const std::filesystem::path& folder,
                       std::initializer_list<const char*> names)
    : FolderLock(op, made_free(op, folder, names)) {
  check_free(op, folder, names);  // another process may have written since
}

FolderLock::~FolderLock() {
  if (is_named(lock_, descriptor())) {
    ::unlinkat(descriptor(), kLockName, 0);
  }
  ::close(lock_);
}

}  // namespace norma::train
