#pragma once

#include <cstdint>

namespace norma::onednn {

/// What oneDNN's bfloat16 primitives are on this CPU.
enum class Bfloat16Support : uint8_t {
  none,      ///< not there, or no oneDNN
  emulated,  ///< from float32 instructions
  native,
};

/// By the instruction sets that oneDNN may use (ONEDNN_MAX_CPU_ISA counts).
Bfloat16Support bfloat16_support();

}  // namespace norma::onednn
