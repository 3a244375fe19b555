#pragma once

#include <stdexcept>
#include <string>

namespace virtual_gpu {

/// A fault of a program that runs on the virtual GPU. The text names the kernel, the line of its source, the block, the
/// thread and the address where they are known.
class Fault : public std::runtime_error {
 public:
  /// What CUDA would say of it.
  enum class Kind {
    kIllegalAddress,     ///< out of bounds, freed, or not the device's
    kMisalignedAddress,  ///< an access that does not begin at a multiple of its size
    kUninitialized,      ///< a read of what was never written; a GPU says nothing
    kRace,               ///< two threads, one of which writes, without a barrier between; a GPU says nothing
    kDivergence,         ///< a barrier or a shuffle that not all of its threads reach
    kResources,          ///< too many threads, registers, blocks, or too much shared memory
    kHostMemory,         ///< the host's memory used while a copy may still use it, or freed; a GPU says nothing
    kUndefined,          ///< a result that PTX leaves undefined, such as that of a division by zero
    kUnsupported,        ///< an instruction or a call that the virtual GPU does not know
  };

  Fault(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace virtual_gpu
