#pragma once

#include "core/simd/targets.h"

#include <utility>

namespace norma::simd {

/// A function of the type F that calls what `best` returns.
template <class F, auto best>
struct Caller;
template <class Result, class... Arguments, auto best>
struct Caller<Result (*)(Arguments...), best> {
  static Result call(Arguments... arguments) { return best()(std::forward<Arguments>(arguments)...); }
};

}  // namespace norma::simd

/// A pointer to a function that calls FUNCTION of the target in use: for tables of kernels, or to be called.
#define NORMA_SIMD_CALL(FUNCTION)                                       \
  (::norma::simd::Caller<decltype(&HWY_STATIC_DISPATCH(FUNCTION)), [] { \
    HWY_EXPORT(FUNCTION);                                               \
    return (::norma::simd::target(), &HWY_DYNAMIC_DISPATCH(FUNCTION));  \
  }>::call)
