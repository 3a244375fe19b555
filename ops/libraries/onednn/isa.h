#pragma once

#include <string_view>

namespace norma::onednn {

/// The instructions of oneDNN's bfloat16 primitives on this CPU: AMX, AVX512_BF16, or AVX-512, which emulates them; "":
/// there are no such primitives. ONEDNN_MAX_CPU_ISA and NORMA_SIMD count.
std::string_view bfloat16_instructions();

/// Keeps oneDNN to the instructions of NORMA_SIMD, unless ONEDNN_MAX_CPU_ISA names others. Only has an effect before
/// the first primitive and the first question about instruction sets.
void limit_instruction_sets();

}  // namespace norma::onednn
