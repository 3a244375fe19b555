#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace norma {

/// For the first line of main(): threads that wait for the next parallel loop spin for some 50 µs and then sleep,
/// unless the environment says something else (GOMP_SPINCOUNT, OMP_WAIT_POLICY). GCC's OpenMP alone spins for
/// milliseconds. That gains nothing here, where loops follow each other within microseconds, and takes the cores from
/// whatever else the machine has to do: beside another program training was two to four times as slow. OpenMP reads its
/// environment before main(), and has no function to set this. So the program starts itself once more in the same
/// process, and where the system does not allow that, it goes on as it is.
inline void spin_briefly(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr && std::getenv("GOMP_SPINCOUNT") == nullptr &&
      ::setenv("GOMP_SPINCOUNT", "10000", /* overwrite= */ 1) == 0) {
    std::error_code unknown;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unknown);
    ::execv(program.c_str(), argv);  // by its own name, which top and pkill go by
    ::execv("/proc/self/exe", argv);
  }
}

}  // namespace norma
