#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace norma {

/// Call this in the first line of main(). Threads that wait for the next parallel loop then spin for some 50 µs before
/// they sleep, unless the environment says otherwise (GOMP_SPINCOUNT, OMP_WAIT_POLICY). GCC's OpenMP by itself spins
/// for milliseconds. That gains nothing here, where loops follow each other within microseconds, and takes cores from
/// other programs: beside one, training was two to four times as slow. OpenMP reads its environment before main(), and
/// no function sets this. So the program starts itself once more in the same process, or goes on as it is if the system
/// forbids that.
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
