#pragma once

#include <array>
#include <csignal>

namespace norma::train {

/// What a signal leaves of the work that is done, for the line that says it was heard.
enum class AfterSignal { saved, figures_of_part };

/// While one lives, the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (unless it was ignored, as nohup has it) says at once
/// that it was heard and sets a flag, which the training loops look at once a step: they write what they have and
/// return. Ctrl-C after that ends the program at once. So does another SIGINT or SIGTERM more than a second later; one
/// that comes sooner is taken for the same (timeout(1) signals the process and then its group). A further SIGHUP ends
/// nothing: closing a terminal sends several. SIGPIPE, by which the reader of the output is gone, sets the flag only.
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

/// True iff a signal came since the guard that lives now was made.
bool interrupted();
/// That signal; 0: none.
int interrupting_signal();

}  // namespace norma::train
