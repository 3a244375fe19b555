#pragma once

#include <string>

namespace norma {

/// True iff convolutions and matrix products of bfloat16 go to oneDNN's bfloat16 primitives. By default they do where
/// those are faster than float32's: with AMX, and with AVX512_BF16 on AMD's processors. Elsewhere operands are
/// converted to float32 and results are rounded, which is slower than float32 itself and faster than the primitives.
/// NORMA_BFLOAT16 = primitives and through_float force one or the other.
bool uses_bfloat16_primitives();
/// Forces it for this process. Throws Error where there are none: a build without oneDNN, a CPU without AVX-512.
void set_bfloat16_primitives(bool use);
/// True iff set_bfloat16_primitives(true) does not throw.
bool has_bfloat16_primitives();
/// True iff bfloat16's products are faster than float32's the way they go now.
bool bfloat16_is_fast();
/// The way they go and why, in a few words: "oneDNN's primitives (AVX512_BF16)".
std::string bfloat16_text();

}  // namespace norma
