#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace norma::simd {

/// The targets of this build that this processor can run, the best first: avx512, avx2, sse4; on ARM neon.
/// "scalar" where there are no vectors.
std::vector<std::string> available_targets();

/// The one in use: the best, or what the environment's NORMA_SIMD names. Throws Error where that is none of the
/// available ones, at every call.
std::string_view target();
/// Whether NORMA_SIMD has named it. Throws as target().
bool target_is_forced();

}  // namespace norma::simd
