#pragma once

#include "base/not_copied.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace norma::emulated {

/// While one of these lives, the memory of the device cuda-emulated may be touched, by all threads; otherwise a read or
/// a write ends the program with a signal, as it would on memory of a GPU.
class Access : NotCopied {
 public:
  Access();
  ~Access();
};

/// A block of this memory: the bytes that were asked for, and the unused ones after them, up to `end`.
struct Block {
  const std::byte* begin;
  size_t bytes;
  const std::byte* end;
};
/// All blocks that are there now, in the order of their addresses.
std::vector<Block> blocks_in_order();

/// The number of times that the host would have waited for the device so far if it were a GPU: for copies to the host,
/// and for synchronize(). Counts all threads. Copies to a GPU go through buffers (core/cuda/staging.h).
int64_t host_waits();

}  // namespace norma::emulated
