#include "session/output.h"

#include "files.h"

#include <unistd.h>

#include <memory>

using namespace norma;
using norma::test::error_of;
using norma::test::TemporaryFolder;
using train::FolderLock;

TEST_CASE("folder lock: one at a time, and nothing is left") {
  const TemporaryFolder folder;
  auto first = std::make_unique<FolderLock>("op", folder.path());
  CHECK(error_of([&] { FolderLock second("op", folder.path()); }) ==
        fmt::format("op: '{}' is being written by another process ({}): wait for it, or choose another output folder",
                    folder.path().string(), ::getpid()));
  first.reset();
  CHECK(folder.names().empty());
  first = std::make_unique<FolderLock>("op", folder.path());
  first.reset();
  CHECK(folder.names().empty());
}

TEST_CASE("folder lock: the file of a process that was killed does not matter") {
  const TemporaryFolder folder;
  norma::test::write_file(folder / ".norma-lock", "12345678901234567890");
  const FolderLock lock("op", folder.path());
  CHECK(norma::test::read_file(folder / ".norma-lock") == fmt::format("{}\n", ::getpid()));
}

TEST_CASE("folder lock: a folder that cannot be written") {
  const TemporaryFolder folder;
  CHECK(error_of([&] { FolderLock lock("op", folder / "none"); }) ==
        "op: cannot write " + (folder / "none").string() + ": No such file or directory");
}

TEST_CASE("folder lock: a folder that is moved is noticed, and one that takes its place is left alone") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "o");
  auto lock = std::make_unique<FolderLock>("op", folder / "o");
  lock->write_text("a", "here");
  CHECK(test::read_file(folder / "o/a") == "here");
  std::filesystem::remove(folder / "o/a");
  std::filesystem::rename(folder / "o", folder / "moved");
  const std::string moved =
      fmt::format("op: '{}' was moved or removed while results were written into it: nothing more is written",
                  (folder / "o").string());
  CHECK(error_of([&] { lock->check_in_place(); }) == moved);
  std::filesystem::create_directory(folder / "o");
  CHECK(error_of([&] { lock->write_text("a", "elsewhere"); }) == moved);
  CHECK(std::filesystem::is_empty(folder / "o"));
  const FolderLock other("op", folder / "o");  // it is another folder
  lock.reset();
  CHECK(std::filesystem::exists(folder / "o/.norma-lock"));
  CHECK(std::filesystem::is_empty(folder / "moved"));
  CHECK(error_of([&] { FolderLock third("op", folder / "o"); }).find("is being written by another process") !=
        std::string::npos);
  other.check_in_place();
}
