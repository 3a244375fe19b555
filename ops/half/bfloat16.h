#pragma once

namespace norma {

/// True iff convolutions and matrix products of bfloat16 run on instructions that are faster than float32's (AMX): this
/// build has oneDNN, and both it and the CPU know them. Elsewhere operands are converted to float32 and results
/// rounded, which is slower than float32 itself, and faster than oneDNN's primitives with AVX512_BF16 or without.
bool bfloat16_in_hardware();

/// True iff bfloat16 goes to oneDNN's bfloat16 primitives. By default where bfloat16_in_hardware(); NORMA_BFLOAT16 =
/// primitives and through_float force one or the other for measuring: on CPUs with AVX-512 and without AVX512_BF16
/// oneDNN emulates the instructions, at a third of the speed of float32.
bool uses_bfloat16_primitives();
/// Forces it for this process. Throws Error where there are none: a build without oneDNN, a CPU without AVX-512.
void set_bfloat16_primitives(bool use);
/// True iff set_bfloat16_primitives(true) does not throw.
bool has_bfloat16_primitives();

}  // namespace norma
