#pragma once

#include <csignal>

namespace norma::train {

/// While one lives, the first SIGINT (Ctrl-C) or SIGTERM only sets a flag, which the training loops look at once a
/// step: they write what they have and return. A signal more than a second later ends the program at once; one that
/// comes sooner is taken for the same (timeout(1) signals the process and then its group).
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_interrupt_ {};
  struct sigaction before_terminate_ {};
};

/// True iff a signal came since the guard that lives now was made.
bool interrupted();

}  // namespace norma::train
