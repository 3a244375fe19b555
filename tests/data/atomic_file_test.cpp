#include "data/atomic_file.h"

#include "files.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>

using namespace norma;
using norma::data::AtomicFile;
using norma::test::error_of;
using norma::test::read_file;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

void write_atomically(const std::filesystem::path& file, const std::string& text) {
  AtomicFile out("op", file);
  out.write(text.data(), text.size());
  out.commit();
}

/// The number of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return child;
}

}  // namespace

TEST_CASE("atomic file: what killed processes left is removed by the next that writes there, and nothing else") {
  const TemporaryFolder folder;
  const pid_t dead = dead_process();
  const auto name = [](const char* file, pid_t process, const char* rest) {
    return fmt::format("{}.{}{}", file, process, rest);
  };
  const std::vector<std::string> stale = {name("a", dead, "-0.tmp"), name("a", dead, "-12.tmp"),
                                          name("a", ::getpid(), "-1000000.tmp"),
                                          name("a", ::getppid(), "-0.tmp")};  // alive, and another program by now
  std::vector<std::string> others = {name("b", dead, "-0.tmp"),               // of another file
                                     name("a", dead, ".tmp"),
                                     name("a", dead, "-0.tmp2"),
                                     name("a", dead, "-x.tmp"),
                                     "a.-0.tmp",
                                     "a.tmp",
                                     "a.old-0.tmp"};
  for (const auto& names : {stale, others}) {
    for (const std::string& file : names) {
      write_file(folder / file, "half");
    }
  }
  write_atomically(folder / "a", "new");
  others.emplace_back("a");
  std::sort(others.begin(), others.end());
  CHECK(folder.names() == others);
  CHECK(read_file(folder / "a") == "new");
}

TEST_CASE("atomic file: a temporary file that is locked is being written, whatever its number says") {
  const TemporaryFolder folder;
  const std::string name = fmt::format("a.{}-0.tmp", dead_process());
  write_file(folder / name, "half");
  const int descriptor = ::open((folder / name).c_str(), O_RDONLY);
  REQUIRE(::flock(descriptor, LOCK_EX) == 0);
  write_atomically(folder / "a", "new");
  CHECK(folder.names() == std::vector<std::string>{"a", name});
  ::close(descriptor);
  write_atomically(folder / "a", "new");
  CHECK(folder.names() == std::vector<std::string>{"a"});
}

TEST_CASE("atomic file: two at once do not take each other's for abandoned") {
  const TemporaryFolder folder;
  AtomicFile first("op", folder / "a");
  first.write("1", 1);
  AtomicFile second("op", folder / "a");
  second.write("2", 1);
  first.commit();
  CHECK(read_file(folder / "a") == "1");
  CHECK(error_of([&] { second.commit(); }) == "op: cannot write " + (folder / "a").string() + ": File exists");
  CHECK(read_file(folder / "a") == "1");
}

TEST_CASE("atomic file: a link is followed, a pipe is not replaced") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "below");
  write_file(folder / "below/a", "old");
  std::filesystem::create_symlink("below/a", folder / "link");
  write_atomically(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "below/a") == "new");

  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(error_of([&] { write_atomically(folder / "pipe", "x"); }) ==
        "op: cannot write " + (folder / "pipe").string() + ": expected a regular file or none, got another kind");
  CHECK(error_of([&] { write_atomically("/dev/null", "x"); }) ==
        "op: cannot write /dev/null: expected a regular file or none, got another kind");
}

TEST_CASE("atomic file: a file that came meanwhile stays, and a link that leads nowhere is a taken name") {
  const TemporaryFolder folder;
  {
    AtomicFile out("op", folder / "a");
    write_file(folder / "a", "another's");
    CHECK(error_of([&] { out.commit(); }) == "op: cannot write " + (folder / "a").string() + ": File exists");
  }
  CHECK(read_file(folder / "a") == "another's");
  write_atomically(folder / "a", "mine");  // it was there before
  CHECK(read_file(folder / "a") == "mine");
  std::filesystem::create_symlink("nowhere", folder / "link");
  for (const char* name : {"a", "link"}) {
    CHECK(error_of([&] { data::check_new("op", "--output", folder / name); }) ==
          "op: --output: expected a name that is not taken, got '" + (folder / name).string() + "'");
  }
  CHECK(error_of([&] { data::check_new("op", "--output", folder / "b"); }) == "no error");
  CHECK(folder.names() == std::vector<std::string>{"a", "link"});
}
