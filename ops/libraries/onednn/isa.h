#pragma once

#include <cstdint>

namespace norma::onednn {

/// What oneDNN's bfloat16 primitives are on this CPU.
enum class Bfloat16Support : uint8_t {
  none,  ///< not there, or no oneDNN
  slow,  ///< emulated, or on dot products that multiply no more per cycle than float32's instructions (AVX512_BF16)
  fast,  ///< on tiles (AMX)
};

/// By the instruction sets that oneDNN may use (ONEDNN_MAX_CPU_ISA and NORMA_SIMD count).
Bfloat16Support bfloat16_support();

/// Keeps oneDNN to the instructions of NORMA_SIMD, unless ONEDNN_MAX_CPU_ISA says which to use. Has an effect before
/// the first primitive and the first question about instruction sets only.
void limit_instruction_sets();

}  // namespace norma::onednn
