#include "session/interrupt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <string>

namespace norma::train {

namespace {

volatile std::sig_atomic_t after_signal = 0;  // an AfterSignal
volatile std::sig_atomic_t is_printed = 1;
std::mutex guards;  // for the two below, and for the handlers
int living_guards = 0;
std::array<struct sigaction, InterruptGuard::kSignals.size()> before_guards{};
timespec first_signal{};  // read and written by the handler only

// The lines of SIGINT, SIGTERM and SIGHUP by AfterSignal, made beforehand: a handler must not ask for memory.
const std::array kMessages = [] {
  std::array<std::array<std::string, 3>, 3> all;
  for (size_t after = 0; after < all.size(); ++after) {
    constexpr std::array kEnds = {"with what is done saved", "with the figures of a part", "without a result"};
    const std::string ending = fmt::format(": ending soon, {}", kEnds[after]);
    all[after] = {"\nnorma: interrupted" + ending + "; Ctrl-C again ends at once\n",
                  "\nnorma: SIGTERM came" + ending + "\n", "\nnorma: SIGHUP came" + ending + "\n"};
  }
  return all;
}();

// Calls only functions that POSIX allows in a signal handler.
void note_signal(int signal, siginfo_t* info, void* /* context */) {
  const int error = errno;
  signal = signal == SIGUSR1 ? SIGINT : signal == SIGUSR2 ? SIGTERM : signal;  // see SharedInterrupts
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (StopFlag::ask(signal)) {
    first_signal = now;
    // A failure is ignored: nothing can be done about it.
    if (is_printed != 0 && signal != SIGPIPE) {
      const std::string& message = kMessages[static_cast<size_t>(after_signal)][signal == SIGINT    ? 0
                                                                                : signal == SIGTERM ? 1
                                                                                                    : 2];
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message.data(), message.size());
    }
    errno = error;
    return;
  }
  errno = error;
  if (signal == SIGPIPE || signal == SIGHUP) {
    return;  // for a closed terminal the shell sends one, and then the system
  }
  const bool from_terminal = signal == SIGINT && info->si_code > 0;  // not from kill()
  const int64_t nanoseconds = (now.tv_sec - first_signal.tv_sec) * 1'000'000'000 + (now.tv_nsec - first_signal.tv_nsec);
  if (from_terminal || nanoseconds > 1'000'000'000) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // delivered when the handler returns
  }
}

/// note_signal() as a handler. Signals wait while one is handled. RESTART: the writing of files goes on.
struct sigaction noting() {
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : InterruptGuard::kSignals) {
    sigaddset(&action.sa_mask, signal);
  }
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  return action;
}

}  // namespace

InterruptGuard::InterruptGuard(AfterSignal after) {
  const std::lock_guard lock(guards);
  after_signal = static_cast<std::sig_atomic_t>(after);
  if (living_guards++ > 0) {
    return;
  }
  StopFlag::withdraw();
  const struct sigaction action = noting();
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_guards[i]);
    if (kSignals[i] != SIGHUP || before_guards[i].sa_handler != SIG_IGN) {
      sigaction(kSignals[i], &action, nullptr);
    }
  }
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(guards);
  if (--living_guards > 0) {
    return;
  }
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_guards[i], nullptr);
  }
  StopFlag::withdraw();
}

SharedInterrupts::SharedInterrupts(bool prints) {
  const struct sigaction action = noting();
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGUSR2, &action, nullptr);
  is_printed = prints ? 1 : 0;
  StopFlag::share(true);
}

SharedInterrupts::~SharedInterrupts() {
  std::signal(SIGUSR1, SIG_DFL);
  std::signal(SIGUSR2, SIG_DFL);
  StopFlag::share(false);
  is_printed = 1;
}

}  // namespace norma::train
