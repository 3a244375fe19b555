#pragma once

#include <string>

namespace norma {

/// True iff convolutions and matrix products of bfloat16 use oneDNN's bfloat16 primitives. By default they do where
/// those are faster than float32's: with AMX, and with AVX512_BF16 on AMD's processors. Elsewhere operands are
/// converted to float32 and results are rounded, which is slower than float32 itself and faster than the primitives.
/// NORMA_BFLOAT16=primitives or =through_float forces one way.
bool uses_bfloat16_primitives();
/// Forces one way for this process. Throws Error without primitives: a build without oneDNN, a CPU without AVX-512.
void set_bfloat16_primitives(bool use);
/// True iff set_bfloat16_primitives(true) does not throw.
bool has_bfloat16_primitives();
/// True iff products of bfloat16, as set, are faster than those of float32.
bool bfloat16_is_fast();
/// The way that they take and why, in a few words: "oneDNN's primitives (AVX512_BF16)".
std::string bfloat16_text();

}  // namespace norma
