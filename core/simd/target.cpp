#include "core/simd/target.h"

#include "base/error.h"
#include "core/simd/targets.h"

#include <fmt/ranges.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstdlib>

namespace norma::simd {

namespace {

std::string_view name_of(int64_t target) {
  switch (target) {
#ifdef HWY_AVX10_2  // what later versions of Highway tell apart
    case HWY_AVX10_2:
#endif
#ifdef HWY_AVX3_SPR
    case HWY_AVX3_SPR:
#endif
#ifdef HWY_AVX3_ZEN4
    case HWY_AVX3_ZEN4:
#endif
    case HWY_AVX3_DL:
    case HWY_AVX3: return "avx512";
    case HWY_AVX2: return "avx2";
    case HWY_SSE4: return "sse4";
#ifdef HWY_NEON_BF16
    case HWY_NEON_BF16:
#endif
#ifdef HWY_NEON_WITHOUT_AES
    case HWY_NEON_WITHOUT_AES:
#endif
    case HWY_NEON: return "neon";
    default: return "scalar";
  }
}

/// Highway's bits of the available targets: the lower, the better.
int64_t available_bits() {
#if defined(NORMA_SIMD_STATIC) || !HWY_HAVE_RUNTIME_DISPATCH
  return HWY_STATIC_TARGET;
#else
  static const int64_t bits = hwy::SupportedTargets() & HWY_TARGETS;  // before any is disabled
  return bits;
#endif
}

/// The best target of `bits`.
int64_t best_of(int64_t bits) {
  return bits & -bits;
}

/// The target that NORMA_SIMD names; empty where it names none.
std::string_view wanted_name() {
  const char* name = std::getenv("NORMA_SIMD");
  return name == nullptr ? std::string_view() : name;
}

int64_t choose() {
  const std::string_view wanted = wanted_name();
  int64_t bits = available_bits();
  if (bits == 0) {
    fail("simd", "this build needs a processor with {}", name_of(HWY_STATIC_TARGET));
  }
  if (wanted.empty()) {
    return best_of(bits);
  }
  while (bits != 0 && name_of(best_of(bits)) != wanted) {
    bits &= bits - 1;
  }
  if (bits == 0) {
    fail("NORMA_SIMD", "expected one of {}, got '{}'", fmt::join(available_targets(), ", "), wanted);
  }
#if !defined(NORMA_SIMD_STATIC) && HWY_HAVE_RUNTIME_DISPATCH
  hwy::DisableTargets(best_of(bits) - 1);
#endif
  return best_of(bits);
}

}  // namespace

std::vector<std::string> available_targets() {
  std::vector<std::string> names;
  for (int64_t bits = available_bits(); bits != 0; bits &= bits - 1) {
    if (const std::string_view name = name_of(best_of(bits)); names.empty() || names.back() != name) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::string_view target() {
  static const int64_t chosen = choose();
  return name_of(chosen);
}

bool target_is_forced() {
  static const bool forced = !target().empty() && !wanted_name().empty();
  return forced;
}

}  // namespace norma::simd
