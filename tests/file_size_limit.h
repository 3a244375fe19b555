#pragma once

#include <sys/resource.h>

#include <csignal>

namespace norma::test {

/// While it lives, no file of this process grows beyond `bytes`: writing fails as on a full disk, in part first.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : before_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, before_signal_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*before_signal_)(int);
};

}  // namespace norma::test
