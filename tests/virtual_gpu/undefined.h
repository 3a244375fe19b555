#pragma once

#include "virtual_gpu/kernel.h"

#include <array>
#include <cstdint>
#include <vector>

namespace virtual_gpu {

class Warp;

/// Which bytes of a warp's registers hold what was never written.
///
/// The padding of a struct is copied with the struct, so that a load whose bytes were written in part is right. Such
/// bytes are followed through the registers: what is computed from them is undefined too, and memory to which they are
/// stored counts as never written again. It is a fault when they decide where a thread goes or what it accesses.
class Undefined {
 public:
  [[nodiscard]] bool empty() const { return registers_.empty(); }
  void clear() { registers_.clear(); }

  /// Throws the fault of a guard or address that is undefined in an active lane.
  void check(Warp& warp, const Instruction& i) const;
  /// What the results of an instruction will be that is about to run for the lanes of `mask`.
  void follow(Warp& warp, const Instruction& i, uint32_t mask);

  using Bytes = std::array<uint8_t, kLanes>;  ///< a bit for each byte of a lane's register

  void set(Operand place, uint32_t mask, const Bytes& bytes, uint32_t origin);
  [[nodiscard]] Bytes of(Operand place) const;

 private:
  struct Register {
    Operand place = 0;
    uint32_t origin = 0;  ///< the load
    Bytes bytes = {};
  };
  [[nodiscard]] const Register* find(Operand place) const;
  [[nodiscard]] Bytes of_shuffle(Warp& warp, const Instruction& i, const Bytes& value, uint32_t mask) const;
  [[nodiscard]] Bytes of_result(Warp& warp, const Instruction& i, size_t output, uint32_t mask) const;

  std::vector<Register> registers_;
};

}  // namespace virtual_gpu
