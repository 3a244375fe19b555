#include "cli/processes.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/parse_number.h"
#include "cli/command.h"
#include "core/parallel.h"
#include "session/interrupt.h"
#include "session/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

namespace norma::cli {

namespace {

/// A number in the environment; none if it is not there, or not one.
std::optional<int64_t> number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::nullopt : parse_number<int64_t>(text);
}

/// What the program that started this process says of it.
struct Started {
  std::string variable;  ///< which has the number of processes
  bool is_slurm = false;
  int64_t processes = 0;
  int64_t local_rank = 0;
  int64_t local_processes = 1;
};

/// By Open MPI's mpirun, or by Slurm's srun --mpi=pmix; none otherwise.
std::optional<Started> started_by() {
  for (const auto& [all, local, on_machine] :
       {std::array{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        std::array{"SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"}}) {
    const bool is_slurm = std::string_view(all).starts_with("SLURM");
    if (is_slurm && std::getenv("PMIX_RANK") == nullptr) {
      continue;  // a job of one process, in which mpirun may be still to come
    }
    if (const auto processes = number_in_environment(all); processes) {
      return Started{.variable = all,
                     .is_slurm = is_slurm,
                     .processes = *processes,
                     .local_rank = number_in_environment(local).value_or(0),
                     .local_processes = std::max<int64_t>(1, number_in_environment(on_machine).value_or(*processes))};
    }
  }
  return std::nullopt;
}

/// As many threads as this process has processors: those that it is bound to, or its share in all of the machine.
int threads_of(const Started& started) {
  const int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
  const int own = num_threads();  // OpenMP counts those that it may use
  return own < online ? own : static_cast<int>(std::max<int64_t>(1, online / started.local_processes));
}

constexpr int kSignalled = 128;  // and the signal: the exit code of a program that one has ended

volatile std::sig_atomic_t children = 0;  // mpirun's process
volatile std::sig_atomic_t signals = 0;

/// mpirun passes these two on to its processes, and would end them for others.
void pass_on(int signal) {
  const int error = errno;
  signals = signals + 1;
  if (children > 0) {
    ::kill(children, signals > 1 ? SIGTERM : signal == SIGINT ? SIGUSR1 : SIGUSR2);
  }
  errno = error;
}

/// Passes on what mpirun and its processes write to stderr, but for mpirun's own words about a process that has ended:
/// Open MPI 5 frames them by two lines of dashes, and has no switch for them.
class MpirunErrors {
 public:
  void read(std::string_view text) {
    for (const char c : text) {
      held_ += c;
      if (c == '\n') {
        take_line();
      }
    }
  }

  /// Prints what is held: a line without an end, or a frame.
  void flush() {
    std::fwrite(held_.data(), 1, held_.size(), stderr);
    held_.clear();
    line_ = 0;
  }

  /// The process that a signal has ended, as mpirun names it.
  const std::string& ended() const { return ended_; }

 private:
  void take_line() {
    const size_t dashes = std::min(held_.find_first_not_of('-', line_), held_.size()) - line_;
    const bool is_edge = dashes > 60 && line_ + dashes + 1 == held_.size();
    const bool is_framed = line_ > 0;
    line_ = held_.size();
    constexpr size_t kLongest = 4096;  // of a frame
    if (is_framed != is_edge && held_.size() < kLongest) {
      return;  // the first line of a frame, or one inside
    }
    const size_t words = held_.find('\n') + 1;
    if (is_framed && held_.find("exited") != std::string::npos &&
        (held_.compare(words, 8, "prterun ") == 0 || held_.compare(words, 7, "mpirun ") == 0)) {
      const auto after = [&](std::string_view text) { return held_.find(text) + text.size(); };
      if (const size_t rank = after("process rank "), process = after(" with PID "); rank < process) {
        ended_ = fmt::format("rank {} (process {})", held_.substr(rank, held_.find(' ', rank) - rank),
                             held_.substr(process, held_.find(' ', process) - process));
      }
      held_.clear();
    }
    flush();
  }

  std::string held_;
  size_t line_ = 0;  ///< where the last line of what is held begins
  std::string ended_ = "a process";
};

/// The words of this process's own command line, and the program's file.
std::vector<std::string> own_words() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) {
    words.push_back(word);
  }
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

/// Prints the errors that end this group: what all say once, anything else by each of them.
void report_end(const std::vector<std::string>& texts, int rank) {
  const std::string& own = texts[static_cast<size_t>(rank)];
  const bool shared = std::ranges::all_of(texts, [&](const std::string& text) { return text == own; });
  if (shared && rank != 0) {
    return;
  }
  complain(shared ? own : fmt::format("rank {}: {}", rank, own));
}

}  // namespace

std::vector<char*> arguments_of(std::vector<std::string>& words) {
  std::vector<char*> arguments = mapped(words, [](std::string& word) { return word.data(); });
  arguments.push_back(nullptr);
  return arguments;
}

int64_t started_processes() {
  const std::optional<Started> started = started_by();
  return started ? started->processes : 0;
}

int start_processes(std::string_view command, int64_t processes) {
  check(
      parallel::has_mpi(), command,
      "procs: expected a build with MPI for {} processes, got one without; install openmpi-bin and libopenmpi-dev, and "
      "build again ('./run {} --procs' does)",
      processes, command);
  constexpr int64_t kMostOfProcessor = 16;  // more would take the machine's memory before any could say a mistake
  const int64_t online = ::sysconf(_SC_NPROCESSORS_ONLN);
  check(processes <= kMostOfProcessor * online, command,
        "procs: expected at most {}, {} for each of the {} processors here, got {}", kMostOfProcessor * online,
        kMostOfProcessor, online, processes);
  ::signal(SIGCHLD, SIG_DFL);  // where a parent ignored it, system() and waitpid() would know nothing of a child
  check(std::system("command -v mpirun > /dev/null") == 0, command,
        "procs: expected mpirun, which starts {} processes, got none in PATH; install openmpi-bin", processes);
  std::vector<std::string> words{"mpirun", "-n", std::to_string(processes), "--bind-to", "none", "--oversubscribe"};
  if (::geteuid() == 0) {
    words.emplace_back("--allow-run-as-root");
  }
  std::ranges::move(own_words(), std::back_inserter(words));
  const std::vector<char*> arguments = arguments_of(words);

  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  if (::isatty(STDOUT_FILENO) == 0) {
    ::setenv("TERM", "dumb", 1);  // mpirun gives its first process a terminal, which is none
  }
  ::setenv("OMPI_MCA_orte_execute_quiet", "1", 1);  // its --quiet, which Open MPI 5 does not know
  const pid_t self = ::getpid();
  int errors[2];
  check(::pipe2(errors, O_CLOEXEC) == 0, command, "procs: cannot start mpirun: {}", std::strerror(errno));
  const pid_t child = ::fork();
  check(child >= 0, command, "procs: cannot start mpirun: {}", std::strerror(errno));
  if (child == 0) {
    ::dup2(errors[1], STDERR_FILENO);
    ::setpgid(0, 0);  // Ctrl-C is for this process's parent alone
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() == self) {
      ::execvp(arguments[0], arguments.data());
    }
    ::_exit(127);
  }
  children = child;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(signal, &action, nullptr);
  }
  ::close(errors[1]);
  MpirunErrors said;
  int status = 0;
  bool has_ended = false;
  for (bool is_open = true; is_open || !has_ended;) {
    // What mpirun leaves behind may hold its stderr open, and what it wrote last is still in the pipe when it has
    // ended.
    pollfd from{.fd = errors[0], .events = POLLIN, .revents = 0};
    constexpr int kMilliseconds = 50;
    if (is_open && ::poll(&from, 1, has_ended ? 0 : kMilliseconds) > 0) {
      std::array<char, 4096> text;
      const ssize_t size = ::read(errors[0], text.data(), text.size());
      is_open = size > 0 || (size < 0 && errno == EINTR);
      said.read({text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))});
      continue;
    }
    if (has_ended) {
      break;
    }
    const pid_t ended = ::waitpid(child, &status, is_open ? WNOHANG : 0);
    has_ended = ended == child || (ended < 0 && errno != EINTR);
  }
  said.flush();
  ::close(errors[0]);
  children = 0;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  const int signal = code - kSignalled;
  if (std::ranges::count(std::array{SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}, signal) > 0) {
    complain(fmt::format("{}: {} was ended by signal {} ({})", command, said.ended(), signal, ::strsignal(signal)));
  }
  return code;
}

int run_in_processes(std::string_view command, RunOptions& options,
                     const std::function<int(const std::shared_ptr<parallel::ProcessGroup>&)>& run) {
  const std::optional<Started> started = started_by();
  if (!started && options.procs > 1) {
    const int64_t tasks = number_in_environment("SLURM_STEP_NUM_TASKS").value_or(1);
    check(tasks == 1, command,
          "procs: expected one process that starts {}, got {} of srun; 'srun --mpi=pmix' without --procs tells them of "
          "each other",
          options.procs, tasks);
    return start_processes(command, options.procs);
  }
  const auto check_asked = [&] {
    check(options.procs == 0 || options.procs == started->processes, command,
          "procs: expected the {} process{} of {}, got {}", started->processes, started->processes == 1 ? "" : "es",
          started->variable, options.procs);
  };
  if (!started || started->processes == 1) {
    if (started) {
      check_asked();
    }
    return run(parallel::make_single_group());
  }
  if (options.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    set_num_threads(threads_of(*started));
  }
  if (options.device == "cuda") {
    options.device = fmt::format("cuda:{}", started->local_rank);
  }
  const char* const rank = std::getenv(started->is_slurm ? "SLURM_PROCID" : "OMPI_COMM_WORLD_RANK");
  const parallel::ProcessGroupOptions group_options{
      .timeout = static_cast<double>(options.timeout), .on_lost = [rank](const std::string& text) {
        // In the middle of a step, which may be long: mpirun ends this process within a second. Files are whole always.
        complain(fmt::format("rank {}: {}", rank == nullptr ? "?" : rank, text));
        std::_Exit(kBadInput);
      }};
  std::shared_ptr<parallel::ProcessGroup> group = parallel::make_mpi_group(group_options);
  if (parallel::has_nccl()) {
    group = parallel::make_nccl_group(group, group_options);  // does nothing of its own where no tensor is on a GPU
  }
  if (!group->is_first() && !options.verbose_ranks) {
    train::redirect([](std::FILE* /*out*/, std::string_view /*text*/) {});
  }
  const train::SharedInterrupts interrupts(/* prints= */ group->is_first());
  try {  // after it, an error that all share is said once
    check_asked();
    check(group->size() == started->processes, command,
          "procs: expected the {} processes of {}, got {} that MPI has started: 'srun --mpi=pmix' and mpirun tell "
          "processes of each other",
          started->processes, started->variable, group->size());
    return run(group);
  } catch (const std::bad_alloc&) {
    report_end(group->leave("out of memory"), group->rank());
  } catch (const std::exception& error) {
    report_end(group->leave(error.what()), group->rank());
  }
  return kBadInput;
}

}  // namespace norma::cli
