#include "cli/program.h"
#include "cli/spin_briefly.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace norma::cli {

namespace {

/// How the program was started: the script `run` uses a long path, and passes its own name on.
void note_start(const char* own) {
  const char* script = std::getenv("NORMA_STARTED_AS");
  if (script != nullptr && *script != '\0') {
    note_program_name(script);
  } else if (own != nullptr && *own != '\0') {
    note_program_name(own);
  }
}

/// Limits the stack of threads started from now on. Loops of ours and of the libraries need a small part of the
/// system's 8 MB. For 64 threads those are half a gigabyte of addresses, which may be limited (ulimit -v).
void set_thread_stack_size() {
  constexpr size_t kStackBytes = size_t{2} << 20U;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
}

/// Replaces closed standard streams by ones on which reading and writing fail. Otherwise a file could get such a
/// stream's number, and printed text would go into it.
void occupy_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) == -1) {
      // This gets the lowest free number, which is this one.
      [[maybe_unused]] const int opened =
          ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY | O_CLOEXEC);
    }
  }
}

}  // namespace

}  // namespace norma::cli

int main(int argc, char** argv) {
  norma::spin_briefly(argv);
  norma::cli::occupy_standard_streams();
  norma::cli::set_thread_stack_size();
  // A closed pipe and a file at its limit (ulimit -f) become errors of writing, so that the rest of the work is kept.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  norma::cli::note_start(argc > 0 ? argv[0] : nullptr);
  return norma::cli::run_program({argv + std::min(argc, 1), argv + argc});
}
