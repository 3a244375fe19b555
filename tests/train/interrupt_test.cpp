#include "train/interrupt.h"

#include <doctest/doctest.h>

#include <csignal>
#include <initializer_list>

using norma::train::interrupted;
using norma::train::InterruptGuard;

TEST_CASE("interrupt: the first signal sets the flag, and the next guard starts without") {
  for (const int signal : {SIGINT, SIGTERM}) {
    {
      const InterruptGuard guard;
      CHECK_FALSE(interrupted());
      std::raise(signal);
      CHECK(interrupted());
    }
    CHECK_FALSE(interrupted());
  }
}

TEST_CASE("interrupt: the second signal finds the default action") {
  const InterruptGuard guard;
  std::raise(SIGINT);
  struct sigaction now {};
  sigaction(SIGINT, nullptr, &now);
  CHECK((now.sa_handler == SIG_DFL));
}

TEST_CASE("interrupt: the guard puts the earlier action back") {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  { const InterruptGuard guard; }
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
}
