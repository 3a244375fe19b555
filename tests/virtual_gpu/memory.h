#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace virtual_gpu {

/// One block of cudaMalloc: memory of the host, whose addresses are the device's, and for each byte a shadow that tells
/// whether it was ever written.
///
/// The bytes lie behind a page that cannot be read, so that an access of the host itself ends the program as it would
/// beside a GPU: only the virtual GPU may read and write them, through `data`.
struct Allocation {
  uint64_t begin = 0;  ///< the device's address, aligned to 256 bytes
  uint64_t bytes = 0;
  std::byte* data = nullptr;     ///< where the virtual GPU itself reads and writes
  std::vector<uint8_t> written;  ///< a byte for each byte of memory: 0 until it is written
  std::string note;              ///< for errors: "768 bytes, allocated by the 17th cudaMalloc"

  [[nodiscard]] uint64_t end() const { return begin + bytes; }
};

/// The global memory of the virtual GPU.
class Memory {
 public:
  explicit Memory(uint64_t capacity);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// The device's address of new memory that reads as poison and counts as never written; 0 where too little is left.
  uint64_t allocate(uint64_t bytes);
  /// Its memory may not be used from here on; later accesses are named as uses after free. False where `address` is not
  /// what allocate() returned.
  bool release(uint64_t address);
  /// The allocation that holds `address`, or nullptr. Valid until it is released.
  [[nodiscard]] Allocation* find(uint64_t address) const;
  /// For errors: which allocation is nearest, and by how much the address misses it, or which one was freed there.
  [[nodiscard]] std::string describe(uint64_t address) const;
  [[nodiscard]] uint64_t capacity() const { return capacity_; }
  [[nodiscard]] uint64_t available() const;

 private:
  mutable std::mutex mutex_;
  uint64_t capacity_;
  uint64_t used_ = 0;
  int64_t count_ = 0;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;
  std::map<uint64_t, std::string> freed_;
};

}  // namespace virtual_gpu
