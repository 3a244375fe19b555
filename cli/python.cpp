#include "cli/python.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "session/interrupt.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>

namespace norma::cli {

namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& op) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  const char* const given = std::getenv("TMPDIR");
  check(!error, op, "expected a folder for temporary files in TMPDIR, got '{}'", given == nullptr ? "/tmp" : given);
  std::string name = (parent / "norma-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, op, "cannot make a folder in '{}'", parent.string());
  path_ = name;
}

ScratchFolder::ScratchFolder(const std::string& op, std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  std::filesystem::create_directories(path_, error);
  check(!error, op, "cannot make the folder {}: {}", path_.string(), error.message());
}

ScratchFolder::~ScratchFolder() {
  std::error_code none;
  std::filesystem::remove_all(path_, none);
}

PythonRun run_python(const std::string& op, const std::vector<std::string>& arguments) {
  const char* const given = std::getenv("NORMA_PYTHON");
  std::vector<std::string> words = {given != nullptr ? given : "python3"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  const ScratchFolder folder(op);
  const std::string out = (folder.path() / "stdout").string();
  const std::string err = (folder.path() / "stderr").string();
  const train::InterruptGuard guard(train::AfterSignal::no_result);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  check(child >= 0, op, "cannot start {}", words[0]);
  if (child == 0) {
    for (const int signal : train::InterruptGuard::kSignals) {
      ::signal(signal, SIG_DFL);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it goes on for nobody
    if (::getppid() != self) {
      ::_exit(127);
    }
    if (std::freopen(out.c_str(), "w", stdout) != nullptr && std::freopen(err.c_str(), "w", stderr) != nullptr) {
      ::execvp(pointers[0], pointers.data());
    }
    ::_exit(127);
  }
  int status = 0;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 5'000'000};
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (train::interrupted()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      throw Interrupted{interrupted_code()};
    }
    ::nanosleep(&kPause, nullptr);
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = text_of(out),
          .err = text_of(err)};
}

}  // namespace norma::cli
