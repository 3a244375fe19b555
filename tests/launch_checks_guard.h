#pragma once

#include "base/not_copied.h"
#include "core/emulated/launch.h"

namespace norma::test {

/// Sets the checks of launches on cuda-emulated while it lives.
class LaunchChecksGuard : NotCopied {
 public:
  explicit LaunchChecksGuard(const emulated::LaunchChecks& checks) : before_(emulated::launch_checks()) {
    emulated::set_launch_checks(checks);
  }
  ~LaunchChecksGuard() { emulated::set_launch_checks(before_); }

 private:
  emulated::LaunchChecks before_;
};

}  // namespace norma::test
