#include "train/interrupt.h"

#include <cstdint>
#include <ctime>

namespace norma::train {

namespace {

volatile std::sig_atomic_t signal_came = 0;
timespec first_signal{};  // read and written by the handler only

// Calls nothing but what POSIX allows in a signal handler.
void note_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (signal_came == 0) {
    signal_came = 1;
    first_signal = now;
    return;
  }
  const int64_t nanoseconds = (now.tv_sec - first_signal.tv_sec) * 1'000'000'000 + (now.tv_nsec - first_signal.tv_nsec);
  if (nanoseconds > 1'000'000'000) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // arrives when the handler returns
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_came = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  // Each signal waits while the other is handled. RESTART: files being written do not notice.
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &before_interrupt_);
  sigaction(SIGTERM, &action, &before_terminate_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &before_interrupt_, nullptr);
  sigaction(SIGTERM, &before_terminate_, nullptr);
  signal_came = 0;
}

bool interrupted() {
  return signal_came != 0;
}

}  // namespace norma::train
