#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::data {

/// A zip archive that is read, by libzip. Error texts begin with "OP: FILE: ", or are those of InputFile.
class ZipArchive {
 public:
  /// Throws Error "OP: FILE: expected EXPECTED: …" for a file that is no zip archive.
  ZipArchive(std::string_view op, const std::filesystem::path& path, std::string_view expected);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  /// The names of its files, by number. They may be any text: errors quote them through excerpt().
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// The bytes of the archive itself.
  [[nodiscard]] uint64_t size() const { return bytes_.size(); }
  /// The bytes of a file. Memory grows with what is there, not with what the archive says. Throws Error for a damaged
  /// file, and for more than `most` bytes.
  [[nodiscard]] std::string read(size_t number, uint64_t most = kMostBytes) const;
  [[nodiscard]] std::string comment() const;

 private:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 30;
  struct Handles;

  std::string op_;
  std::string file_;
  std::string bytes_;  // of the archive
  std::unique_ptr<Handles> handles_;
  std::vector<std::string> names_;
};

}  // namespace norma::data
