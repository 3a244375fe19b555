#pragma once

#include "base/error.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

// What the fuzz programs share. Each is one LLVMFuzzerTestOneInput(), which libFuzzer calls with bytes of its own
// making.

namespace norma::fuzz {

/// A file in memory with these bytes, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls f(), which may throw an Error of one readable line of bounded length, and nothing else.
template <class F>
void read(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    const bool readable = std::none_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20; });
    if (text.size() > 4000 || !readable) {
      std::abort();
    }
  }
}

}  // namespace norma::fuzz
