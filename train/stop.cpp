#include "train/stop.h"

#include <atomic>
#include <csignal>

namespace norma::train {

namespace {

volatile std::sig_atomic_t asking_signal = 0;  // its number
bool is_shared = false;
std::atomic<int> settled_signal = 0;  // which the processes have agreed on

}  // namespace

bool interrupted() {
  return interrupting_signal() != 0;
}

int interrupting_signal() {
  return is_shared ? settled_signal.load() : asking_signal;
}

bool StopFlag::ask(int signal) {
  if (asking_signal != 0) {
    return false;
  }
  asking_signal = signal;
  return true;
}

void StopFlag::withdraw() {
  asking_signal = 0;
}

bool StopFlag::is_pending() {
  return asking_signal != 0;
}

void StopFlag::share(bool together) {
  settled_signal = 0;
  is_shared = together;
}

void StopFlag::settle(bool any) {
  if (any && settled_signal == 0) {
    settled_signal = asking_signal != 0 ? asking_signal : SIGTERM;
  }
}

}  // namespace norma::train
