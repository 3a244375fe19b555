#pragma once

#include "virtual_gpu/numbers.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace virtual_gpu {

/// A tensor in the device's memory, as a call of a library describes it.
struct Operand {
  std::string name;  ///< for errors: "cudnnBackendExecute: x"
  uint64_t address = 0;
  NumberType type = NumberType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  ///< in elements; none is negative

  [[nodiscard]] int64_t elements() const;
  /// From the first byte to behind the last one; 0 without elements.
  [[nodiscard]] uint64_t span_bytes() const;
  /// Whether two indices lead to the same element.
  [[nodiscard]] bool overlaps_itself() const;
};

/// Whether an element of one shares a byte with an element of the other.
bool overlap(const Operand& one, const Operand& other);

/// Its elements in the order of its axes. Throws Fault where it does not lie inside one allocation, or holds what was
/// never written.
std::vector<double> read(const Operand& operand);
/// Rounds values in the order of its axes to its type. Throws Fault where it does not lie inside one allocation.
void write(const Operand& operand, const std::vector<double>& values);

/// Bytes of the device's memory, as read() and write() treat elements.
std::vector<std::byte> read_bytes(const std::string& name, uint64_t address, uint64_t bytes);
void write_bytes(const std::string& name, uint64_t address, std::span<const std::byte> bytes);

/// Fills memory with noise, and has it count as never written: what a library leaves in its workspace, and what its own
/// caller left there, means nothing. Throws Fault where it does not lie inside one allocation.
void poison(const std::string& name, uint64_t address, uint64_t bytes);

/// The address of a pointer that a program gave.
inline uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

/// "(2, 16, 8, 8)"
std::string text_of(const std::vector<int64_t>& sizes);

}  // namespace virtual_gpu
