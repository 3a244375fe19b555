#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/maps.cpp"
#include "core/simd/foreach_target.h"

#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/map_norm/cpu/map_loops.h"

// y and dx of a MapFunction, and the table of the family's CPU kernels.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// Calls f(i, part, numbers, through_stats) for the vectors of all arrays. A vector begins with element i.
template <class F, bool has_stats, class S, class Each, class T = compute_t<S>>
HWY_INLINE void for_each_vector(const MapShape& shape, const MapArrays<S>& a, Each&& f) {
  constexpr int kNumbers = map_counts(F::kFunction).numbers;
  constexpr int kStats = has_stats ? kThroughStatsRows : 1;
  const T* through_stats = has_stats ? a.through_stats : a.numbers;  // unused without stats
  const int64_t maps = shape.maps();
  if (!shape.channels_last) {
    for_each_maps(shape, [&](int64_t begin, int64_t end) {
      for (int64_t map = begin; map < end; ++map) {
        const RunNumbers<T, kNumbers> numbers(a.numbers, maps, map);
        const RunNumbers<T, kStats> of_stats(through_stats, maps, map);
        for_each_lanes<T>(shape.inner, [&](int64_t i, auto part) NORMA_INLINE {
          f(map * shape.inner + i, part, numbers.as(part), of_stats.as(part));
        });
      }
    });
    return;
  }
  const int64_t width = shape.channels;
  for_each_rows(shape, [&](int64_t o, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for_each_register<T>(width, [&](int64_t i, auto part) NORMA_INLINE {
        const RowNumbers<T, kNumbers, decltype(part)> numbers(a.numbers + o * width + i, maps, part);
        const RowNumbers<T, kStats, decltype(part)> of_stats(through_stats + o * width + i, maps, part);
        f((o * shape.inner + row) * width + i, part, numbers, of_stats);
      });
    }
  });
}

template <class S>
void forward_of(const MapProblem& problem, const MapArrays<S>& a) {
  with_map_function(problem, [&]<class F>(F) {
    for_each_vector<F, /* has_stats= */ false>(problem.shape, a,
                                               [&](int64_t i, auto part, const auto& numbers, const auto&) HWY_ATTR {
                                                 store(a.result + i, F::value(load(a.x + i, part), numbers), part);
                                               });
  });
}

template <class S>
void gradient_of(const MapProblem& problem, const MapArrays<S>& a) {
  enum Row : int { kMean, kMeanLow, kRstd, kBy, kShift };
  with_map_function(problem, [&]<class F>(F) {
    for_each_vector<F, /* has_stats= */ true>(
        problem.shape, a, [&](int64_t i, auto part, const auto& numbers, const auto& of_stats) HWY_ATTR {
          const auto x = load(a.x + i, part);
          const auto centred = ((x - of_stats(kMean)) - of_stats(kMeanLow)) * of_stats(kRstd);
          const auto through_stats = multiply_add(centred, of_stats(kBy), of_stats(kShift));
          store(a.result + i, F::derivatives(load(a.dy + i, part), x, numbers).slope + through_stats, part);
        });
  });
}

}  // namespace

void map_forward(DType dtype, const MapProblem& problem, const MapForward& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    forward_of<S>(
        problem,
        {.x = static_cast<const S*>(a.x), .numbers = static_cast<const T*>(a.numbers), .result = static_cast<S*>(a.y)});
  });
}

void map_gradient(DType dtype, const MapProblem& problem, const MapGradient& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    gradient_of<S>(problem, {.dy = static_cast<const S*>(a.dy),
                             .x = static_cast<const S*>(a.x),
                             .numbers = static_cast<const T*>(a.numbers),
                             .through_stats = static_cast<const T*>(a.through_stats),
                             .result = static_cast<S*>(a.dx)});
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

namespace {

HWY_EXPORT(map_forward);
void map_forward(DType dtype, const MapProblem& problem, const MapForward& arrays) {
  NORMA_SIMD_BEST(map_forward)(dtype, problem, arrays);
}
HWY_EXPORT(map_gradient);
void map_gradient(DType dtype, const MapProblem& problem, const MapGradient& arrays) {
  NORMA_SIMD_BEST(map_gradient)(dtype, problem, arrays);
}

}  // namespace

}  // namespace norma::kernels::cpu

namespace norma::kernels {

constinit const MapNormKernels map_norm_cpu{.numbers = cpu::map_numbers,
                                            .forward = cpu::map_forward,
                                            .sums = cpu::map_sums,
                                            .numbers_backward = cpu::map_numbers_backward,
                                            .gradient = cpu::map_gradient,
                                            .local_response = cpu::local_response};

}  // namespace norma::kernels
#endif
