#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace norma {

/// True iff convolutions and matrix products of bfloat16 go to oneDNN's bfloat16 primitives. By default they do where
/// those are faster than float32's: with AMX, and with AVX512_BF16 on processors of which avx512_bf16_is_faster() says
/// so. Elsewhere operands are converted to float32 and results are rounded, which is slower than float32 itself.
/// NORMA_BFLOAT16 = primitives and through_float force one or the other.
bool uses_bfloat16_primitives();
/// Whether oneDNN's primitives with AVX512_BF16 are faster than those of float32 on processors of a maker ("AMD",
/// "Intel") and family; none where nobody has measured. This is a table of what was measured (docs/precision.md) and no
/// measurement of this process: a run that goes on has to compute the same bits.
std::optional<bool> avx512_bf16_is_faster(std::string_view maker, int family);
/// Forces one way for this process. Throws Error where there are none: a build without oneDNN, a CPU without AVX-512.
void set_bfloat16_primitives(bool use);
/// True iff set_bfloat16_primitives(true) does not throw.
bool has_bfloat16_primitives();
/// True iff products of bfloat16, as set, are faster than those of float32.
bool bfloat16_is_fast();
/// The way that they take and why, in a few words: "oneDNN's primitives (AVX512_BF16)".
std::string bfloat16_text();

}  // namespace norma
