#pragma once

// The processors that the kernels are compiled for: with NORMA_SIMD_STATIC (NORMA_NATIVE=ON) the one of the compiler's
// flags, else all of the family, of which the program takes the best when it runs. A kernel file begins with
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "ops/family/file.cpp"
//   #include "core/simd/foreach_target.h"
//
// which includes it once for each target. Code that differs between targets stands between HWY_BEFORE_NAMESPACE() and
// HWY_AFTER_NAMESPACE() in a namespace HWY_NAMESPACE; headers of such code have a guard that lets them in again. Code
// that exists once stands in #if HWY_ONCE. There NORMA_SIMD_CALL(f) of core/simd/call.h is a pointer to the function of
// the target in use. HWY_EXPORT(f) and NORMA_SIMD_BEST(f) are for a function whose pointer is not kept.

#include "core/simd/target.h"

#define HWY_DISABLE_PCLMUL_AES  // no kernel needs them
// Structs hold no vectors of SVE, and Norma supports no processor without SSE4.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#ifdef NORMA_SIMD_STATIC
#define HWY_COMPILE_ONLY_STATIC
#elif defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#elif defined(__aarch64__) && !defined(TOOLCHAIN_MISS_SYS_AUXV_H)
// NEON is all that there is to choose, and every such processor has it. Highway, which would choose at run time, wants
// AES with it.
#define TOOLCHAIN_MISS_SYS_AUXV_H
#endif

/// After the parameters of a lambda: it is always inlined. GCC calls the bodies of many loops otherwise, and vectors
/// of more than one register then go through memory.
#define NORMA_INLINE __attribute__((always_inline))

/// The function of the target in use (core/simd/target.h).
#define NORMA_SIMD_BEST(FUNCTION) (::norma::simd::target(), HWY_DYNAMIC_DISPATCH(FUNCTION))
