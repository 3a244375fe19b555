#include "base/input_file.h"

#include "base/excerpt.h"
#include "files.h"

#include <sys/stat.h>

using namespace norma;
using norma::test::error_of;
using norma::test::TemporaryFolder;

TEST_CASE("input file: a whole file, through links, and in parts") {
  const TemporaryFolder folder;
  const std::string text(200'000, 'x');
  norma::test::write_file(folder / "file", text);
  std::filesystem::create_symlink("file", folder / "link");
  CHECK(read_text_file("op", folder / "link", 200'000) == text);
  norma::test::write_file(folder / "empty", "");
  CHECK(read_text_file("op", folder / "empty", 0).empty());
  InputFile input("op", folder / "file", 200'000);
  CHECK(input.size() == 200'000);
  std::string part(150'000, ' ');
  CHECK(input.read(part.data(), part.size()) == 150'000);
  CHECK(input.read(part.data(), part.size()) == 50'000);
  CHECK(input.read(part.data(), part.size()) == 0);
}

TEST_CASE("input file: a file of the system that says it has no bytes") {
  CHECK(read_text_file("op", "/proc/self/status", 1 << 20).starts_with("Name:"));
  CHECK(error_of([] { read_text_file("op", "/proc/self/status", 10); }) ==
        "op: cannot read /proc/self/status: expected at most 10 bytes, got more");
}

TEST_CASE("input file: what is not read, each with its error") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& name, uint64_t limit = 100) {
    const std::string path = name[0] == '/' ? name : (folder / name).string();
    const std::string text = error_of([&] { read_text_file("op", path, limit); });
    const std::string start = "op: cannot open " + path + ": ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  CHECK(error("none") == "No such file or directory");
  CHECK(error("/dev/zero") == "expected a regular file, got a device");
  CHECK(error(".") == "expected a regular file, got a folder");
  // Opened plainly, it would wait for somebody who writes.
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(error("pipe") == "expected a regular file, got a pipe");
  std::filesystem::create_symlink("pipe", folder / "link");
  CHECK(error("link") == "expected a regular file, got a pipe");
  std::filesystem::create_symlink("loop", folder / "loop");
  CHECK(error("loop") == "Too many levels of symbolic links");
  norma::test::write_file(folder / "large", std::string(2560, 'x'));
  CHECK(error("large") == "expected at most 100 bytes, got 2.5 KiB");
  CHECK(error("large", 2559) == "expected at most 2.5 KiB, got 2.5 KiB");
}

TEST_CASE("excerpt: cut between characters, without control characters") {
  CHECK(excerpt("plain") == "plain");
  CHECK(excerpt("") == "");
  CHECK(excerpt("one\ntwo\x1B[31m\x7F") == "one?two?[31m?");
  CHECK(excerpt("a\u009Bb\u00A0\u07FF\uFFFD\U0010FFFF") == "a?b\u00A0\u07FF\uFFFD\U0010FFFF");  // 9B begins a sequence
  CHECK(excerpt("\xFFz\x80z\xC0\x80z\xED\xA0\x80z\xF4\x90\x80\x80z\xE0\x9F\xBFz") == "?z?z??z???z????z???z");
  CHECK(excerpt("cut \xE2\x80") == "cut ??");
  CHECK(plain_text("one\n\ttwo\r\x1B[31m\xFE\u0085") == "one\n\ttwo??[31m??");
  CHECK(excerpt("12345", 5) == "12345");
  CHECK(excerpt("123456", 5) == "12345…");
  CHECK(excerpt("1234ü", 5) == "1234…");  // ü has two bytes
  CHECK(excerpt("\x80\x80\x80\x80", 2) == "…");
}

TEST_CASE("excerpt: lists") {
  CHECK(excerpt_list({}) == "");
  CHECK(excerpt_list({"a", "b", "c", "d", "e", "f"}) == "a, b, c, d, e, f");
  CHECK(excerpt_list({"a", "b", "c", "d", "e", "f", "g", "h"}, "; ") == "a; b; c; d; e; f and 2 more");
  CHECK(excerpt_list({std::string(300, 'x')}, ", ", 3) == "xxx…");
}

TEST_CASE("excerpt: numbers of bytes") {
  CHECK(byte_text(0) == "0 bytes");
  CHECK(byte_text(1023) == "1023 bytes");
  CHECK(byte_text(1024) == "1 KiB");
  CHECK(byte_text(uint64_t{1} << 20) == "1 MiB");
  CHECK(byte_text(uint64_t{5} << 29) == "2.5 GiB");
  CHECK(byte_text(UINT64_MAX) == "16777216 TiB");
}
