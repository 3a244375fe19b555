#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/local_response.cpp"
#include "core/simd/foreach_target.h"

#include "core/half.h"
#include "core/parallel.h"
#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/norm/cpu/run_loops.h"
#include "ops/norm/cpu/scratch.h"
#include "ops/norm/cpu/walks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

// A tile is all channels of a few pixels: with channels_last one pixel, whose channels are a run of memory, else as
// many as keep the tile in the cache. It is copied together so that element i's neighbours in the next channel are
// always i + width, and everything is a loop over one run.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// Calls then(i, s[i]^-beta) for all i.
template <class T, class Then>
[[gnu::flatten]] void for_each_power(int64_t count, double beta, const T* s, Then then) {
  if (beta == 0.75) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const T root = std::sqrt(s[i]);
      then(i, T(1) / (root * std::sqrt(root)));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    then(i, std::pow(s[i], static_cast<T>(-beta)));
  }
}

/// result[i] = offset + scale * sum of from[i + j * width] for j in [first, last]. Calls see(result) for each vector.
template <class T, class See>
void window_sums(int64_t count, const T* from, int64_t width, int64_t first, int64_t last, T offset, T scale, T* result,
                 See see) {
  for_each_lanes<T>(count, [&](int64_t i, auto part) {
    Lanes<T> sum = {};
    for (int64_t j = first; j <= last; ++j) {
      sum += load(from + i + j * width, part);
    }
    const Lanes<T> value = multiply_add(broadcast(scale), sum, broadcast(offset));
    see(value);
    store(result + i, value, part);
  });
}

/// The memory of a thread for one tile after another.
template <class T>
struct Buffers {
  T* x;
  T* dy;
  T* squares;  ///< padded
  T* s;
  T* power;
  T* shares;  ///< padded
  T* result;

  Buffers(Scratch& scratch, int64_t count, int64_t padded)
      : x(scratch.take<T>(count)),
        dy(scratch.take<T>(count)),
        squares(scratch.zeros<T>(padded)),
        s(scratch.take<T>(count)),
        power(scratch.take<T>(count)),
        shares(scratch.zeros<T>(padded)),
        result(scratch.take<T>(count)) {}
};

/// The largest s whose powers stay in the range of T: s^-beta, and s^(-beta - 1) for gradients.
template <class T>
T largest_sum(double beta, bool gradient) {
  const double exponent = gradient ? beta + 1 : beta;
  constexpr T kMost = std::numeric_limits<T>::max();
  constexpr double kLeast = static_cast<double>(std::numeric_limits<T>::min()) / std::numeric_limits<T>::epsilon();
  return exponent <= 0 ? kMost : static_cast<T>(std::min<double>(kMost, std::pow(kLeast, -1 / exponent)));
}

/// From b.x, its squares and, for gradients, b.dy to b.result. False where a sum of squares is above `most`: nothing is
/// done then.
template <class T>
bool run_tile(const LocalResponseProblem& p, int64_t count, int64_t width, bool gradient, T most, const Buffers<T>& b) {
  const T* squares = b.squares + p.below * width;
  Lanes<T> largest = broadcast(static_cast<T>(p.k));
  window_sums(count, squares, width, -p.below, p.above, static_cast<T>(p.k), static_cast<T>(p.scale), b.s,
              [&largest](const Lanes<T>& s) HWY_ATTR { largest = select(largest < s, s, largest); });
  if (bits_of<T>(broadcast(most) < largest) != 0) [[unlikely]] {
    return false;
  }
  const bool relu = p.relu;
  if (!gradient) {
    for_each_power(count, p.beta, b.s, [&b, relu](int64_t i, T power) {
      const T y = b.x[i] * power;
      b.result[i] = relu && y <= 0 ? T(0) : y;
    });
    return true;
  }
  T* shares = b.shares + p.above * width;
  for_each_power(count, p.beta, b.s, [&b, relu, shares](int64_t i, T power) {
    const T dy = relu && b.x[i] * power <= 0 ? T(0) : b.dy[i];
    b.dy[i] = dy;
    b.power[i] = power;
    shares[i] = dy * b.x[i] * (power / b.s[i]);
  });
  window_sums(count, shares, width, -p.above, p.below, T(0), static_cast<T>(-2 * p.scale * p.beta), b.result,
              [](const Lanes<T>&) HWY_ATTR {});
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    b.result[i] = b.dy[i] * b.power[i] + b.x[i] * b.result[i];
  }
  return true;
}

/// A vector, or one number.
template <class T, class Part>
HWY_INLINE void store_at(T* to, const Lanes<T>& value, Part part) {
  store(to, value, part);
}
template <class T>
HWY_INLINE void store_at(T* to, T value) {
  *to = value;
}

/// A tile in memory: `rows` runs of `run` elements, `stride` apart.
struct TileShape {
  int64_t rows;
  int64_t run;
  int64_t stride;

  /// Calls put(place, value, part) for the vectors of the tile, or put(place, value) where T is wider than S's own.
  template <class T, class S, class Put>
  void gather(const S* from, Put put) const {
    for (int64_t row = 0; row < rows; ++row) {
      if constexpr (std::is_same_v<T, compute_t<S>>) {
        for_each_lanes<T>(run,
                          [&](int64_t i, auto part) { put(row * run + i, load(from + row * stride + i, part), part); });
      } else {
        for (int64_t i = 0; i < run; ++i) {
          put(row * run + i, static_cast<T>(static_cast<compute_t<S>>(from[row * stride + i])));
        }
      }
    }
  }
  template <class S, class T>
  void scatter(const T* from, S* to) const {
    for (int64_t row = 0; row < rows; ++row) {
      if constexpr (std::is_same_v<T, compute_t<S>>) {
        store_run(run, from + row * run, to + row * stride);
      } else {
        for (int64_t i = 0; i < run; ++i) {
          to[row * stride + i] = static_cast<S>(static_cast<compute_t<S>>(from[row * run + i]));
        }
      }
    }
  }
};

/// A tile of y, or of dx unless dy is null. False as run_tile().
template <class S, class T>
bool run_in_memory(const LocalResponseProblem& p, const TileShape& tile, int64_t width, const S* x, const S* dy,
                   S* result, T most, const Buffers<T>& b) {
  T* squares = b.squares + p.below * width;
  tile.gather<T>(x, [&](int64_t at, auto value, auto... part) {
    store_at(b.x + at, value, part...);
    store_at(squares + at, value * value, part...);
  });
  if (dy != nullptr) {
    tile.gather<T>(dy, [&](int64_t at, auto value, auto... part) { store_at(b.dy + at, value, part...); });
  }
  if (!run_tile(p, tile.rows * tile.run, width, dy != nullptr, most, b)) {
    return false;
  }
  tile.scatter(b.result, result);
  return true;
}

/// The same in double: squares of numbers above 1e19, and powers of sums of them, leave the range of float32.
template <class S>
[[gnu::noinline, gnu::cold]] void run_wide(const LocalResponseProblem& p, const TileShape& tile, int64_t width,
                                           const S* x, const S* dy, S* result, int64_t elements, int64_t padded) {
  Scratch scratch;
  const Buffers<double> buffers(scratch, elements, padded);
  run_in_memory(p, tile, width, x, dy, result, std::numeric_limits<double>::infinity(), buffers);
}

/// dy: null for y.
template <class S>
[[gnu::noinline]] void local_response_of(const LocalResponseProblem& p, const S* x, const S* dy, S* result) {
  using T = compute_t<S>;
  constexpr int64_t kTileNumbers = 2048;
  const MapShape& shape = p.shape;
  const int64_t channels = shape.channels;
  const int64_t pixels = shape.channels_last ? 1 : shape.inner;
  const int64_t widest = shape.channels_last ? 1 : std::min(pixels, std::max<int64_t>(16, kTileNumbers / channels));
  const int64_t tiles = ceil_div(pixels, widest);
  const int64_t outer = shape.channels_last ? shape.outer * shape.inner : shape.outer;
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (channels * widest));
  const bool gradient = dy != nullptr;
  const T most = largest_sum<T>(p.beta, gradient);
  const int64_t most_elements = channels * widest;
  const int64_t padded = (channels + p.below + p.above) * widest;
  parallel_for(0, outer * tiles, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const Buffers<T> buffers(scratch, most_elements, padded);
    int64_t last_width = widest;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % tiles * widest;
      const int64_t width = std::min(widest, pixels - first);
      const int64_t at = tile / tiles * channels * pixels + first;
      const TileShape in_memory{
          .rows = shape.channels_last ? 1 : channels, .run = shape.channels_last ? channels : width, .stride = pixels};
      if (width != last_width) {  // what is padding lies elsewhere
        std::fill_n(buffers.squares, padded, T(0));
        std::fill_n(buffers.shares, padded, T(0));
        last_width = width;
      }
      const S* tile_dy = gradient ? dy + at : nullptr;
      if (!run_in_memory(p, in_memory, width, x + at, tile_dy, result + at, most, buffers)) [[unlikely]] {
        run_wide(p, in_memory, width, x + at, tile_dy, result + at, most_elements, padded);
      }
    }
  });
}

}  // namespace

void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays) {
  dispatch_any_floating("local_response_norm", dtype, [&]<class S>(S) {
    local_response_of(problem, static_cast<const S*>(arrays.x), static_cast<const S*>(arrays.dy),
                      static_cast<S*>(arrays.result));
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(local_response);
void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays) {
  NORMA_SIMD_BEST(local_response)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif
