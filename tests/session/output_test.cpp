#include "session/output.h"

#include "base/error.h"
#include "file_size_limit.h"
#include "files.h"

#include <doctest/doctest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <string>

using namespace norma;
using namespace norma::train;
using test::read_file;
using test::TemporaryFolder;

TEST_CASE("output: folders are made with those above") {
  const TemporaryFolder folder;
  make_output_folder("train", folder.path() / "a" / "b");
  CHECK(std::filesystem::is_empty(folder.path() / "a" / "b"));
  make_output_folder("train", folder.path() / "a" / "b");  // again
}

// A file that is made and removed stays when the process is killed between the two.
TEST_CASE("output: trying whether a folder can be written makes no file in it, not even for a moment") {
  const TemporaryFolder folder;
  const int events = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(events >= 0);
  REQUIRE(::inotify_add_watch(events, folder.path().c_str(), IN_CREATE | IN_MOVED_TO) >= 0);
  std::array<char, 4096> buffer{};
  const auto seen = [&] { return ::read(events, buffer.data(), buffer.size()) > 0; };
  make_output_folder("train", folder.path());
  CHECK_FALSE(seen());
  test::write_file(folder / "file", "x");
  CHECK(seen());
  ::close(events);
}

TEST_CASE("output: a folder that cannot be written is named with the reason") {
  const TemporaryFolder folder;
  test::write_file(folder / "file", "x");
  CHECK_THROWS_WITH_AS(make_output_folder("train", folder / "file"),
                       ("train: cannot write " + (folder / "file").string() + ": Not a directory").c_str(), Error);
  CHECK_THROWS_WITH_AS(make_output_folder("train", folder / "file/below"),
                       ("train: cannot write " + (folder / "file/below").string() + ": Not a directory").c_str(),
                       Error);
  CHECK_THROWS_AS(make_output_folder("train", "/proc/norma"), Error);
}

TEST_CASE("output: a text file is replaced by all of the text") {
  const TemporaryFolder folder;
  write_text_file("compare", folder / "a.txt", "first");
  write_text_file("compare", folder / "a.txt", "second text");
  CHECK(read_file(folder / "a.txt") == "second text");
}

TEST_CASE("output: on a full disk the file stays as it was and nothing else is left") {
  const TemporaryFolder folder;
  write_text_file("compare", folder / "a.txt", "first");
  {
    const test::FileSizeLimit limit(1000);
    CHECK_THROWS_WITH_AS(write_text_file("compare", folder / "a.txt", std::string(5000, 'x')),
                         ("compare: cannot write " + (folder / "a.txt").string() + ": File too large").c_str(), Error);
  }
  CHECK(read_file(folder / "a.txt") == "first");
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}
