#include "nn/plugin_file.h"

#include "base/error.h"
#include "base/sha256.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>

namespace norma::nn {

namespace {

constexpr auto kOp = "plugin";
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

/// The structure at an offset of the file.
template <class T>
T at(std::string_view bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Throws Error unless the bytes are a whole shared library, as far as its tables tell.
void check_library(const std::string& file, std::string_view bytes) {
  constexpr int kBits = sizeof(ElfW(Addr)) == 8 ? ELFCLASS64 : ELFCLASS32;
  constexpr int kOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  check(bytes.starts_with(std::string_view(ELFMAG, SELFMAG)), kOp, "{}: expected a shared library, got another file",
        file);
  const auto check_inside = [&](uint64_t offset, uint64_t count) {
    check(offset <= bytes.size() && count <= bytes.size() - offset, kOp,
          "{}: expected a whole shared library, got one that ends after {} bytes", file, bytes.size());
  };
  check_inside(0, sizeof(ElfW(Ehdr)));
  const auto head = at<ElfW(Ehdr)>(bytes, 0);
  check(head.e_ident[EI_CLASS] == kBits && head.e_ident[EI_DATA] == kOrder && head.e_type == ET_DYN &&
            head.e_phentsize == sizeof(ElfW(Phdr)),
        kOp, "{}: expected a shared library for this machine, got another program", file);
  check_inside(head.e_phoff, uint64_t{head.e_phnum} * head.e_phentsize);
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    const auto segment = at<ElfW(Phdr)>(bytes, head.e_phoff + i * sizeof(ElfW(Phdr)));
    check_inside(segment.p_offset, segment.p_filesz);
  }
  check_inside(head.e_shoff, uint64_t{head.e_shnum} * head.e_shentsize);  // section headers, which linkers write last
}

}  // namespace

PluginFile::PluginFile(const std::filesystem::path& file) : input_(kOp, file, kMaxBytes) {
  bytes_ = input_.read_rest();
  check_library(file.string(), bytes_);
  // Without links and "..": the name that is judged and loaded is that of the file that was read.
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(file, error);
  record_ = {.file = (error ? std::filesystem::absolute(file).lexically_normal() : whole).string(),
             .sha256 = sha256(bytes_)};
}

std::string PluginFile::sealed_path() const {
  const int descriptor = ::memfd_create("plugin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  std::ofstream out(path, std::ios::binary);
  out << bytes_ << std::flush;
  check(out.good() && ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0,
        kOp, "{}: cannot keep a copy of it in memory: {}", record_.file, std::strerror(errno));
  return path;
}

}  // namespace norma::nn
