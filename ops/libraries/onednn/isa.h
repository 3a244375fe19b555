#pragma once

#include <string_view>

namespace norma::onednn {

/// oneDNN's bfloat16 primitives on this CPU.
struct Bfloat16Primitives {
  std::string_view instructions;  ///< AMX, AVX512_BF16, or AVX-512, which emulates them; "": there are no primitives
  bool faster = false;            ///< they are faster than those of float32
};

/// Answers by the instruction sets that oneDNN may use (ONEDNN_MAX_CPU_ISA and NORMA_SIMD count), and by the maker of
/// the CPU. The answer is a table of measurements (docs/precision.md), not one of this process: a resumed run must
/// compute the same bits.
Bfloat16Primitives bfloat16_primitives();

/// Keeps oneDNN to the instructions of NORMA_SIMD, unless ONEDNN_MAX_CPU_ISA names others. Only has an effect before
/// the first primitive and the first question about instruction sets.
void limit_instruction_sets();

}  // namespace norma::onednn
