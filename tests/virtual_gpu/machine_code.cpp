#include "virtual_gpu/fatbin.h"
#include "virtual_gpu/fault.h"

#include <elf.h>

#include <cstring>
#include <string_view>

// Machine code is an ELF file. Its sections .nv.info and .nv.info.KERNEL are lists of attributes, each of which is a
// byte for the format, a byte for the attribute, and either two bytes of value, or two bytes of length and the value.

namespace virtual_gpu {
namespace {

constexpr uint8_t kSized = 0x04;            // the format with a length
constexpr uint8_t kRegisterCount = 0x2f;    // symbol, registers
constexpr uint8_t kMaxThreads = 0x05;       // x, y, z of __launch_bounds__
constexpr uint64_t kReservedShared = 1024;  // of each block, for CUDA itself; in the section's size since sm_80
constexpr std::string_view kInfo = ".nv.info";
constexpr std::string_view kShared = ".nv.shared.";

class Elf {
 public:
  explicit Elf(std::span<const std::byte> bytes) : bytes_(bytes) {
    require(bytes.size() >= sizeof(Elf64_Ehdr) && std::memcmp(bytes.data(), ELFMAG, SELFMAG) == 0);
    const auto header = read<Elf64_Ehdr>(0);
    for (uint64_t i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    }
    require(header.e_shstrndx < sections_.size());
    names_ = sections_[header.e_shstrndx];
  }

  template <class T>
  [[nodiscard]] T read(uint64_t offset) const {
    require(offset + sizeof(T) <= bytes_.size());
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  [[nodiscard]] const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  [[nodiscard]] std::string name(const Elf64_Shdr& section) const { return text(names_, section.sh_name); }
  [[nodiscard]] std::string symbol_name(uint64_t index) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type == SHT_SYMTAB) {
        const auto symbol = read<Elf64_Sym>(section.sh_offset + index * sizeof(Elf64_Sym));
        require(section.sh_link < sections_.size());
        return text(sections_[section.sh_link], symbol.st_name);
      }
    }
    return {};
  }

 private:
  [[nodiscard]] std::string text(const Elf64_Shdr& strings, uint64_t offset) const {
    const uint64_t begin = strings.sh_offset + offset;
    uint64_t end = begin;
    while (read<char>(end) != '\0') {
      ++end;
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, end - begin};
  }
  static void require(bool holds) {
    if (!holds) {
      throw Fault(Fault::Kind::kUnsupported, "machine code: expected an ELF file, got something else");
    }
  }

  std::span<const std::byte> bytes_;
  std::vector<Elf64_Shdr> sections_;
  Elf64_Shdr names_{};
};

/// Calls f(attribute, offset of its value) for each attribute with a length.
template <class F>
void for_each_attribute(const Elf& elf, const Elf64_Shdr& section, F&& f) {
  uint64_t at = section.sh_offset;
  const uint64_t end = section.sh_offset + section.sh_size;
  while (at + 4 <= end) {
    if (elf.read<uint8_t>(at) == kSized) {
      f(elf.read<uint8_t>(at + 1), at + 4);
      at += elf.read<uint16_t>(at + 2);
    }
    at += 4;
  }
}

}  // namespace

std::map<std::string, KernelResources> resources_of(std::span<const std::byte> machine_code) {
  const Elf elf(machine_code);
  std::map<std::string, KernelResources> result;
  for (const Elf64_Shdr& section : elf.sections()) {
    if (elf.name(section) == kInfo) {
      for_each_attribute(elf, section, [&](uint8_t attribute, uint64_t value) {
        if (attribute == kRegisterCount) {
          result[elf.symbol_name(elf.read<uint32_t>(value))].registers = elf.read<int32_t>(value + 4);
        }
      });
    }
  }
  for (const Elf64_Shdr& section : elf.sections()) {
    const std::string name = elf.name(section);
    if (name.starts_with(kInfo) && name.size() > kInfo.size()) {
      const auto kernel = result.find(name.substr(kInfo.size() + 1));
      for_each_attribute(elf, section, [&](uint8_t attribute, uint64_t value) {
        if (attribute == kMaxThreads && kernel != result.end()) {
          kernel->second.max_threads =
              elf.read<int32_t>(value) * elf.read<int32_t>(value + 4) * elf.read<int32_t>(value + 8);
        }
      });
    } else if (name.starts_with(kShared)) {
      const auto kernel = result.find(name.substr(kShared.size()));
      if (kernel != result.end()) {
        kernel->second.static_shared_bytes = section.sh_size - std::min(section.sh_size, kReservedShared);
      }
    }
  }
  return result;
}

}  // namespace virtual_gpu
