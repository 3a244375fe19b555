#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace norma::simd {

/// The targets of this build that this processor can run, the best first: avx512, avx2, sse4; on ARM neon.
/// "scalar" where there are no vectors.
std::vector<std::string> available_targets();

/// The target in use: the best, or the one that the environment's NORMA_SIMD names. Throws Error at every call where
/// that is not available.
std::string_view target();
/// True iff NORMA_SIMD has named it. Throws as target() does.
bool target_is_forced();

}  // namespace norma::simd
