#include "base/input_file.h"

#include "base/error.h"
#include "base/excerpt.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace norma {

namespace {

std::string_view kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    default: return "something else";
  }
}

}  // namespace

InputFile::InputFile(std::string_view op, const std::filesystem::path& file, uint64_t limit)
    : op_(op), name_(file.string()), limit_(limit) {
  // `failed` is an argument, so that errno is read after the call.
  const auto check_done = [&](bool failed) { check(!failed, op_, "cannot open {}: {}", name_, std::strerror(errno)); };
  const auto check_regular = [&](const struct stat& status) {
    check(S_ISREG(status.st_mode), op_, "cannot open {}: expected a regular file, got {}", name_,
          kind_of(status.st_mode));
  };
  struct stat status {};
  // The check comes first, since opening alone acts on a pipe and on some devices.
  check_done(::stat(name_.c_str(), &status) != 0);
  check_regular(status);
  // The file of that name may change in between. With NONBLOCK a pipe opens at once, and is then refused.
  const int descriptor = ::open(name_.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  check_done(descriptor < 0);
  try {
    check_done(::fstat(descriptor, &status) != 0);
    check_regular(status);
    size_ = static_cast<uint64_t>(status.st_size);
    check(size_ <= limit, op_, "cannot open {}: expected at most {}, got {}", name_, byte_text(limit),
          byte_text(size_));
  } catch (const Error&) {
    ::close(descriptor);
    throw;
  }
  descriptor_ = descriptor;
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

size_t InputFile::read(void* bytes, size_t count) {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::read(descriptor_, static_cast<char*>(bytes) + done, count - done);
    if (got == 0) {
      break;
    }
    check(got > 0 || errno == EINTR, op_, "cannot read {}: {}", name_, std::strerror(errno));
    done += static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  return done;
}

std::string InputFile::read_rest() {
  constexpr size_t kChunk = size_t{1} << 16;
  // The size is asked for, not believed: the file may grow, and files of /proc say 0.
  std::string bytes;
  for (size_t got = kChunk; got == kChunk;) {
    const size_t before = bytes.size();
    bytes.resize(before + kChunk);
    got = read(bytes.data() + before, kChunk);
    bytes.resize(before + got);
    check(bytes.size() <= limit_, op_, "cannot read {}: expected at most {}, got more", name_, byte_text(limit_));
  }
  return bytes;
}

std::string InputFile::descriptor_path() const {
  return fmt::format("/proc/self/fd/{}", descriptor_);
}

std::string read_text_file(std::string_view op, const std::filesystem::path& file, uint64_t limit) {
  return InputFile(op, file, limit).read_rest();
}

}  // namespace norma
