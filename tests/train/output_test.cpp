#include "train/output.h"

#include "core/error.h"
#include "file_size_limit.h"
#include "files.h"

#include <doctest/doctest.h>

#include <string>

using namespace norma;
using namespace norma::train;
using test::read_file;
using test::TemporaryFolder;

TEST_CASE("output: folders are made with those above, and no probe stays in them") {
  const TemporaryFolder folder;
  make_output_folder("train", folder.path() / "a" / "b");
  CHECK(std::filesystem::is_empty(folder.path() / "a" / "b"));
  make_output_folder("train", folder.path() / "a" / "b");  // again
}

TEST_CASE("output: trying whether a folder can be written touches nothing that is there") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "h");
  test::write_file(folder / "victim", "a letter");
  std::filesystem::create_symlink("../victim", folder / "h/.norma-write-test");
  make_output_folder("train", folder / "h");
  CHECK(read_file(folder / "victim") == "a letter");
  CHECK(std::filesystem::is_symlink(folder / "h/.norma-write-test"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "h"), {}) == 1);
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
