#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace virtual_gpu {

class Races;  // races.h: who read and wrote which word in the launch that runs

/// One block of cudaMalloc: memory of the host, whose addresses are the device's, and for each byte a shadow that tells
/// whether it was ever written.
///
/// The device's addresses are pages that the host cannot read, so that an access of the host itself ends the program as
/// it would beside a GPU: only the virtual GPU may read and write the bytes, through `data`.
struct Allocation {
  uint64_t begin = 0;  ///< the device's address, a multiple of 256 and not of 512
  uint64_t bytes = 0;
  int device = 0;                ///< the number of the GPU that it belongs to
  std::byte* data = nullptr;     ///< where the virtual GPU itself reads and writes
  std::span<uint8_t> written;    ///< a byte for each byte of memory: 0 until it is written
  std::string note;              ///< for errors: "768 bytes, allocated by cudaMalloc number 17"
  std::unique_ptr<Races> races;  ///< made when a kernel first uses the memory

  Allocation();
  ~Allocation();
  [[nodiscard]] uint64_t end() const { return begin + bytes; }
};

/// The global memory of the virtual GPUs, each of the same capacity.
class Memory {
 public:
  explicit Memory(uint64_t capacity);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// The device's address of new memory that counts as never written; 0 where too little is left. It reads as NaN (all
  /// bits set) up to 64 MiB; larger memory reads as 0, so that pages that nobody touches cost nothing. An address is
  /// never given twice, so that a use after free is known for one.
  uint64_t allocate(uint64_t bytes, int device = 0);
  /// Its memory may not be used from here on; later accesses are named as uses after free. False where `address` is not
  /// what allocate() returned.
  bool release(uint64_t address);
  /// The allocation that holds `address`, or nullptr. Valid until it is released.
  [[nodiscard]] Allocation* find(uint64_t address) const;
  /// For errors: which allocation holds the address, or was freed there, or is nearest, and by how much the address
  /// misses it: "4 bytes after the end of 768 bytes, allocated by cudaMalloc number 17".
  [[nodiscard]] std::string describe(uint64_t address) const;
  [[nodiscard]] uint64_t capacity() const { return capacity_; }
  [[nodiscard]] uint64_t available(int device = 0) const;

 private:
  mutable std::mutex mutex_;
  uint64_t capacity_;
  std::map<int, uint64_t> used_;  ///< by device
  int64_t count_ = 0;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;
  struct Freed {
    uint64_t bytes;
    std::string note;
  };
  std::map<uint64_t, Freed> freed_;
  uint64_t range_begin_ = 0;
  uint64_t range_end_ = 0;
  uint64_t next_ = 0;
};

}  // namespace virtual_gpu
