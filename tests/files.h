#pragma once

#include "error_text.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace norma::test {

/// An empty folder of this test's own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (root() / "norma-test-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// Names of the files in it, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  /// In memory where there is room for it, unless TMPDIR is set: half of the time of a short training is that of
  /// fsync().
  static std::filesystem::path root() {
    constexpr uint64_t kRoom = uint64_t{4} << 30;
    struct statvfs memory {};
    const bool fits = std::getenv("TMPDIR") == nullptr && ::statvfs("/dev/shm", &memory) == 0 &&
                      (memory.f_flag & (ST_NOEXEC | ST_RDONLY)) == 0 && memory.f_bavail * memory.f_frsize > kRoom;
    return fits ? "/dev/shm" : std::filesystem::temp_directory_path();
  }

  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& file, const std::string& bytes) {
  std::ofstream output(file, std::ios::binary);
  output.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(output.good());
}

inline std::string read_file(const std::filesystem::path& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(file, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

inline std::string gzip(const std::string& bytes) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

/// An IDX file of bytes.
inline std::string idx_bytes(std::initializer_list<uint32_t> sizes, const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<char>(size >> shift));
    }
  }
  return bytes + values;
}

struct BadFile {
  std::string what;
  std::string bytes;
  std::string error;  ///< FILE stands for the file's path
};

/// Each damaged file gives its error when read(path) reads it.
template <class Read>
void check_bad_files(const std::vector<BadFile>& bad_files, Read&& read) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "file";
  for (const BadFile& bad : bad_files) {
    write_file(file, bad.bytes);
    std::string error = error_of([&] { read(file); });
    if (const size_t at = error.find(file.string()); at != std::string::npos) {
      error.replace(at, file.string().size(), "FILE");
    }
    CHECK_MESSAGE(error == bad.error, bad.what);
  }
}

}  // namespace norma::test
