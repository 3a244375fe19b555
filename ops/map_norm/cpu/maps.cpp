#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/maps.cpp"
#include "core/simd/foreach_target.h"

#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/map_norm/cpu/map_loops.h"
#include "ops/map_norm/functions.h"
#include "ops/norm/cpu/scratch.h"

// y and dx of a MapFunction, and the table of the family's CPU kernels.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

// GCC would call the functions of these loops rather than inline them: hence flatten.

template <class F, class T, class N>
[[gnu::flatten]] void values(int64_t count, const T* x, const N& n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i] = F::value(x[i], n, i);
  }
}

template <class F, class T, class N>
[[gnu::flatten]] void gradients(int64_t count, const T* dy, const T* x, const N& n, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = F::slope(dy[i], x[i], n, i);
  }
}

/// c: mean, mean_low, rstd, by, shift
template <class F, class T, class N, class C>
[[gnu::flatten]] void gradients(int64_t count, const T* dy, const T* x, const N& n, const C& c, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T centred = ((x[i] - c(0, i)) - c(1, i)) * c(2, i);
    dx[i] = F::slope(dy[i], x[i], n, i) + multiply_add(centred, c(3, i), c(4, i));
  }
}

/// Where tiles of 16 bits are widened; other dtypes need no such memory.
template <class S, class T = compute_t<S>>
struct WideTiles {
  Scratch scratch;
  T* dy = nullptr;
  T* x = nullptr;
  T* result = nullptr;

  WideTiles() {
    if constexpr (!std::is_same_v<S, T>) {
      for (T** tile : {&x, &result, &dy}) {
        *tile = scratch.take<T>(kTile);
      }
    }
  }
};

template <class S>
[[gnu::noinline]] void forward_of(const MapProblem& problem, const MapArrays<S>& a) {
  using T = compute_t<S>;
  const MapShape& shape = problem.shape;
  const auto run = [&]<class F>(F, const WideTiles<S>& wide, int64_t at, int64_t all, const auto& numbers_from) {
    for_each_tile<S>(all, [&](int64_t first, int64_t count) {
      T* y = wide_place(a.result + at + first, wide.result);
      values<F>(count, widened(count, a.x + at + first, wide.x), numbers_from(first), y);
      store_wide(count, y, a.result + at + first);
    });
  };
  with_map_function(problem, [&]<class F>(F f) {
    if (!shape.channels_last) {
      return for_each_maps(shape, [&](int64_t begin, int64_t end) {
        const WideTiles<S> wide;
        for (int64_t map = begin; map < end; ++map) {
          const MapNumbers<T, F::kNumbers> numbers(a.numbers, shape.maps(), map);
          run(f, wide, map * shape.inner, shape.inner, [&](int64_t) { return numbers; });
        }
      });
    }
    for_each_rows(shape, [&](int64_t o, int64_t begin, int64_t end) {
      const WideTiles<S> wide;
      for (int64_t row = begin; row < end; ++row) {
        run(f, wide, (o * shape.inner + row) * shape.channels, shape.channels, [&](int64_t first) {
          return RowNumbers<T>{.first = a.numbers + o * shape.channels + first, .maps = shape.maps()};
        });
      }
    });
  });
}

template <class S>
[[gnu::noinline]] void gradient_of(const MapProblem& problem, const MapArrays<S>& a) {
  using T = compute_t<S>;
  const MapShape& shape = problem.shape;
  const auto run = [&]<class F>(F, const WideTiles<S>& wide, int64_t at, int64_t all, const auto& numbers_from,
                                const auto& through_stats_from) {
    for_each_tile<S>(all, [&](int64_t first, int64_t count) {
      const T* dy = widened(count, a.dy + at + first, wide.dy);
      const T* x = widened(count, a.x + at + first, wide.x);
      T* dx = wide_place(a.result + at + first, wide.result);
      a.through_stats == nullptr ? gradients<F>(count, dy, x, numbers_from(first), dx)
                                 : gradients<F>(count, dy, x, numbers_from(first), through_stats_from(first), dx);
      store_wide(count, dx, a.result + at + first);
    });
  };
  const T* through_stats = a.through_stats == nullptr ? a.numbers : a.through_stats;  // then not read
  with_map_function(problem, [&]<class F>(F f) {
    if (!shape.channels_last) {
      return for_each_maps(shape, [&](int64_t begin, int64_t end) {
        const WideTiles<S> wide;
        for (int64_t map = begin; map < end; ++map) {
          const MapNumbers<T, F::kNumbers> numbers(a.numbers, shape.maps(), map);
          const MapNumbers<T, 5> of_map(through_stats, a.through_stats == nullptr ? 0 : shape.maps(), map);
          run(
              f, wide, map * shape.inner, shape.inner, [&](int64_t) { return numbers; },
              [&](int64_t) { return of_map; });
        }
      });
    }
    for_each_rows(shape, [&](int64_t o, int64_t begin, int64_t end) {
      const WideTiles<S> wide;
      for (int64_t row = begin; row < end; ++row) {
        const auto from = [&](const T* numbers) {
          return [&shape, numbers, o](int64_t first) {
            return RowNumbers<T>{.first = numbers + o * shape.channels + first, .maps = shape.maps()};
          };
        };
        run(f, wide, (o * shape.inner + row) * shape.channels, shape.channels, from(a.numbers), from(through_stats));
      }
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
