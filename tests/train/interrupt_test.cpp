#include "train/interrupt.h"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <thread>

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

TEST_CASE("interrupt: a second signal ends the program, unless it comes at once") {
  const pid_t child = fork();
  if (child == 0) {
    const InterruptGuard guard;
    std::raise(SIGINT);
    std::raise(SIGINT);
    std::raise(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    std::raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("interrupt: the guard puts the earlier action back") {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  { const InterruptGuard guard; }
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
}
