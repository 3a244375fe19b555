#include "virtual_gpu/fatbin.h"

#include "virtual_gpu/fault.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cstring>

// A fat binary begins with FatHeader; entries follow one another, each an EntryHeader, padding, and the payload. NVIDIA
// does not document it; the offsets are as nvcc 12 and 13 write them, and a test unpacks what this build's nvcc wrote.

namespace virtual_gpu {
namespace {

constexpr uint32_t kFatMagic = 0xBA55ED50;
constexpr uint64_t kPackedByZstd = 0x8000;
constexpr uint64_t kPackedByLz4 = 0x2000;

struct FatHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;
};

struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  uint32_t packed_bytes;
  uint32_t unknown;
  uint32_t options_offset;
  uint32_t capability;
  uint32_t bits;
  uint32_t options_bytes;
  uint64_t flags;
  uint64_t unknown_too;
  uint64_t unpacked_bytes;
};
static_assert(offsetof(EntryHeader, flags) == 0x28 && offsetof(EntryHeader, unpacked_bytes) == 0x38);

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::vector<std::byte> unpacked(const EntryHeader& header, const std::byte* payload) {
  if ((header.flags & kPackedByLz4) != 0) {
    throw Fault(Fault::Kind::kUnsupported,
                "fat binary: an entry is packed by LZ4; expected zstd (nvcc --compress-mode=size) or --no-compress");
  }
  if ((header.flags & kPackedByZstd) == 0) {
    return {payload, payload + header.payload_bytes};
  }
  std::vector<std::byte> result(header.unpacked_bytes);
  const size_t got = ZSTD_decompress(result.data(), result.size(), payload, header.packed_bytes);
  if (ZSTD_isError(got) != 0 || got != result.size()) {
    throw Fault(Fault::Kind::kUnsupported,
                fmt::format("fat binary: zstd: expected {} bytes, got {}", result.size(),
                            ZSTD_isError(got) != 0 ? ZSTD_getErrorName(got) : std::to_string(got)));
  }
  return result;
}

}  // namespace

std::vector<FatEntry> entries_of(const std::byte* blob) {
  const auto fat = read<FatHeader>(blob);
  if (fat.magic != kFatMagic) {
    throw Fault(Fault::Kind::kUnsupported,
                fmt::format("fat binary: expected {:#x} at its begin, got {:#x}", kFatMagic, fat.magic));
  }
  std::vector<FatEntry> result;
  const std::byte* const end = blob + fat.header_bytes + fat.bytes;
  const std::byte* at = blob + fat.header_bytes;
  while (static_cast<size_t>(end - at) >= sizeof(EntryHeader)) {
    const auto header = read<EntryHeader>(at);
    if (header.header_bytes < sizeof(EntryHeader) ||
        header.header_bytes + header.payload_bytes > static_cast<uint64_t>(end - at)) {
      throw Fault(Fault::Kind::kUnsupported,
                  fmt::format("fat binary: the entry at {} has {} + {} bytes, more than there are", at - blob,
                              header.header_bytes, header.payload_bytes));
    }
    if (header.kind == static_cast<int>(FatEntry::Kind::kPtx) ||
        header.kind == static_cast<int>(FatEntry::Kind::kMachineCode)) {
      result.push_back({.kind = static_cast<FatEntry::Kind>(header.kind),
                        .capability = static_cast<int>(header.capability),
                        .bytes = unpacked(header, at + header.header_bytes)});
    }
    at += header.header_bytes + header.payload_bytes;
  }
  return result;
}

}  // namespace virtual_gpu
