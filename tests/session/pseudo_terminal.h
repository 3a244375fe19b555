#pragma once

#include <pty.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

/// True where there are no pseudo-terminals, as in a chroot without /dev/pts. It prints the line by which ctest knows
/// that the test was skipped.
inline bool no_pseudo_terminals() {
  int master = -1;
  int slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) {
    std::printf("skipped: no pseudo-terminals (openpty: %s)\n", std::strerror(errno));
    return true;
  }
  ::close(slave);
  ::close(master);
  return false;
}
