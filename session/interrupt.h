#pragma once

#include "base/not_copied.h"
#include "train/processes.h"

#include <array>
#include <csignal>

namespace norma::train {

/// The work that is kept after a signal, for the line that acknowledges it.
enum class AfterSignal { saved, figures_of_part, no_result };

/// While one lives, the first SIGINT (Ctrl-C), SIGTERM or SIGHUP (unless ignored, as under nohup) prints a line at once
/// and asks for the end of work (train/processes.h). The training loops look once a step, write what they have and
/// return. Ctrl-C after that ends the program at once, and so does another SIGINT or SIGTERM more than a second later.
/// One that comes sooner counts as the same signal (timeout(1) signals the process and then its group). A further
/// SIGHUP ends nothing: closing a terminal sends several. SIGPIPE (the output's reader is gone) only asks. Guards of
/// several threads may end in any order: the last one that ends sets the handlers back, and withdraws what was asked.
class InterruptGuard : NotCopied {
 public:
  explicit InterruptGuard(AfterSignal after = AfterSignal::saved);
  ~InterruptGuard();

  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
};

/// While one lives, processes that work together end together: a signal counts when all know of it (StopFlag::share()).
/// SIGUSR1 counts as SIGINT, and SIGUSR2 as SIGTERM: mpirun passes SIGUSR1 and SIGUSR2 on to its processes, but on
/// SIGINT and SIGTERM it ends them.
class SharedInterrupts : NotCopied {
 public:
  /// `prints`: this process prints the line of a signal; one process is enough for that.
  explicit SharedInterrupts(bool prints);
  ~SharedInterrupts();
};

}  // namespace norma::train
