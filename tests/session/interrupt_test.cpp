#include "session/interrupt.h"
#include "session/pseudo_terminal.h"

#include <doctest/doctest.h>

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>
#include <utility>

using norma::train::interrupted;
using norma::train::InterruptGuard;
using norma::train::interrupting_signal;

TEST_CASE("interrupt: the first signal sets the flag, and the next guard starts without") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    {
      const InterruptGuard guard;
      CHECK_FALSE(interrupted());
      std::raise(signal);
      CHECK(interrupted());
      CHECK(interrupting_signal() == signal);
    }
    CHECK_FALSE(interrupted());
    CHECK(interrupting_signal() == 0);
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

TEST_CASE("interrupt: guards that end in another order than they began put the earlier action back, too") {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  std::optional<InterruptGuard> first(std::in_place);
  std::optional<InterruptGuard> second(std::in_place);
  first.reset();
  std::raise(SIGINT);
  CHECK(interrupted());
  second.reset();
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
}

TEST_CASE("interrupt: a SIGHUP that was ignored stays so, as nohup has it") {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const InterruptGuard guard;
    std::raise(SIGHUP);
    CHECK_FALSE(interrupted());
  }
  std::signal(SIGHUP, before);
}

TEST_CASE("interrupt: a terminal that is closed hangs up twice, and the run has its time to save") {
  if (no_pseudo_terminals()) {
    return;
  }
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    std::signal(SIGHUP, SIG_DFL);  // it may be ignored where the tests run
    const InterruptGuard guard;
    [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, "ready", 5);
    while (!interrupted()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    std::raise(SIGHUP);
    _exit(7);
  }
  REQUIRE(child > 0);
  char c = 0;
  REQUIRE(::read(terminal, &c, 1) == 1);
  ::kill(child, SIGHUP);  // as a shell does for its jobs
  ::close(terminal);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("interrupt: Ctrl-C is heard at once, and the second one ends the program at once") {
  if (no_pseudo_terminals()) {
    return;
  }
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {  // its standard streams are the terminal's
    const InterruptGuard guard;
    [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, "ready", 5);
    std::this_thread::sleep_for(std::chrono::seconds(60));  // the first signal ends this
    std::this_thread::sleep_for(std::chrono::seconds(60));
    _exit(0);
  }
  REQUIRE(child > 0);
  std::string shown;
  const auto read_until = [&](const std::string& text) {
    for (char c = 0; shown.find(text) == std::string::npos && ::read(terminal, &c, 1) == 1;) {
      shown += c;
    }
    return shown.find(text) != std::string::npos;
  };
  CHECK(read_until("ready"));
  REQUIRE(::write(terminal, "\x03", 1) == 1);
  CHECK(read_until("norma: interrupted: ending soon, with what is done saved; Ctrl-C again ends at once"));
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(::write(terminal, "\x03", 1) == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
  ::close(terminal);
}
