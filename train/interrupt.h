#pragma once

#include <array>
#include <csignal>

namespace norma::train {

/// The work that is kept after a signal, for the line that acknowledges it.
enum class AfterSignal { saved, figures_of_part };

/// While one lives, the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (unless ignored, as under nohup) prints a line at once
/// and sets a flag. The training loops check the flag once a step, write what they have and return. Ctrl-C after that
/// ends the program at once, and so does another SIGINT or SIGTERM more than a second later. One that comes sooner
/// counts as the same signal (timeout(1) signals the process and then its group). A further SIGHUP ends nothing:
/// closing a terminal sends several. SIGPIPE (the output's reader is gone) only sets the flag.
class InterruptGuard {
 public:
  explicit InterruptGuard(AfterSignal after = AfterSignal::saved);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// True iff a signal came since the living guard was made.
bool interrupted();
/// That signal; 0 if none came.
int interrupting_signal();

}  // namespace norma::train
