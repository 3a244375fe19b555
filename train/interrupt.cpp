#include "train/interrupt.h"

namespace norma::train {

namespace {

volatile std::sig_atomic_t signal_came = 0;

void note_signal(int) {
  signal_came = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_came = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  // RESETHAND: the second signal finds the default action. RESTART: files being written do not notice the first.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
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
