#pragma once

#include "core/input_file.h"

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace norma::data {

/// Reads a file from front to back, and unpacks it if it begins like a gzip file. It is stricter than zlib's own
/// gzread: bytes after the packed data and a cut or damaged stream are errors.
class ByteReader {
 public:
  /// `op` begins every error text. Throws as InputFile does.
  ByteReader(std::string op, std::filesystem::path file);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Fills `bytes` and returns how many bytes there were: fewer than asked for only at the end of the file. Throws
  /// Error for a file that cannot be read or unpacked.
  size_t read(std::span<uint8_t> bytes);

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }

 private:
  size_t fill_input();
  size_t read_plain(std::span<uint8_t> bytes);
  size_t read_gzip(std::span<uint8_t> bytes);

  std::string op_;
  std::filesystem::path file_;
  InputFile source_;
  std::vector<uint8_t> input_;  ///< bytes from the disk that z_ has not used up
  z_stream z_{};
  bool is_gzip_ = false;
  bool at_end_ = false;
};

}  // namespace norma::data
