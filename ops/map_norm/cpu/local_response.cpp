#include "core/half.h"
#include "core/parallel.h"
#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/norm/cpu/run_loops.h"
#include "ops/norm/cpu/scratch.h"
#include "ops/norm/cpu/walks.h"

#include <algorithm>
#include <cmath>

// A tile is all channels of a few pixels: with channels_last one pixel, whose channels are a run of memory, else as
// many as keep the tile in the cache. It is copied together so that element i's neighbours in the next channel are
// always i + width, and everything is a loop over one run.

namespace norma::kernels::cpu {

namespace {

/// s^-beta
template <class T>
[[gnu::flatten]] void powers(int64_t count, double beta, const T* s, T* result) {
  if (beta == 0.75) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const T root = std::sqrt(s[i]);
      result[i] = T(1) / (root * std::sqrt(root));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    result[i] = std::pow(s[i], static_cast<T>(-beta));
  }
}

/// result[i] = offset + scale * sum of from[i + j * width] for j in [first, last]
template <class T>
void window_sums(int64_t count, const T* from, int64_t width, int64_t first, int64_t last, T offset, T scale,
                 T* result) {
  for_each_lanes<T>(count, [&](int64_t i, auto part) {
    Lanes<T> sum = {};
    for (int64_t j = first; j <= last; ++j) {
      sum += load(from + i + j * width, part);
    }
    store(result + i, multiply_add(broadcast(scale), sum, broadcast(offset)), part);
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
  T* sums;
};

/// b.x and, for gradients, b.dy are there; the result comes to b.sums.
template <class T>
void run_tile(const LocalResponseProblem& p, int64_t count, int64_t width, bool gradient, const Buffers<T>& b) {
  T* squares = b.squares + p.below * width;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    squares[i] = b.x[i] * b.x[i];
  }
  window_sums(count, squares, width, -p.below, p.above, static_cast<T>(p.k), static_cast<T>(p.scale), b.s);
  powers(count, p.beta, b.s, b.power);
  if (!gradient) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const T y = b.x[i] * b.power[i];
      b.sums[i] = p.relu && y <= 0 ? T(0) : y;
    }
    return;
  }
  if (p.relu) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      b.dy[i] = b.x[i] * b.power[i] <= 0 ? T(0) : b.dy[i];
    }
  }
  T* shares = b.shares + p.above * width;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    shares[i] = b.dy[i] * b.x[i] * (b.power[i] / b.s[i]);
  }
  window_sums(count, shares, width, -p.above, p.below, T(0), static_cast<T>(-2 * p.scale * p.beta), b.sums);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    b.sums[i] = b.dy[i] * b.power[i] + b.x[i] * b.sums[i];
  }
}

/// dy: null for y.
template <class S>
void local_response_of(const LocalResponseProblem& p, const S* x, const S* dy, S* result) {
  using T = compute_t<S>;
  constexpr int64_t kTileNumbers = 2048;
  const MapShape& shape = p.shape;
  const int64_t channels = shape.channels;
  const int64_t pixels = shape.channels_last ? 1 : shape.inner;
  const int64_t widest = shape.channels_last ? 1 : std::min(pixels, std::max<int64_t>(16, kTileNumbers / channels));
  const int64_t tiles = ceil_div(pixels, widest);
  const int64_t outer = shape.channels_last ? shape.outer * shape.inner : shape.outer;
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (channels * widest));
  parallel_for(0, outer * tiles, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const int64_t most = channels * widest;
    const int64_t padded = (channels + p.below + p.above) * widest;
    const Buffers<T> buffers{.x = scratch.take<T>(most),
                             .dy = scratch.take<T>(most),
                             .squares = scratch.zeros<T>(padded),
                             .s = scratch.take<T>(most),
                             .power = scratch.take<T>(most),
                             .shares = scratch.zeros<T>(padded),
                             .sums = scratch.take<T>(most)};
    int64_t last_width = widest;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile % tiles * widest;
      const int64_t width = std::min(widest, pixels - first);
      const int64_t at = tile / tiles * channels * pixels + first;
      const int64_t rows = shape.channels_last ? 1 : channels;  // runs of memory in the tile
      const int64_t run = shape.channels_last ? channels : width;
      if (width != last_width) {  // what is padding lies elsewhere
        std::fill_n(buffers.squares, padded, T(0));
        std::fill_n(buffers.shares, padded, T(0));
        last_width = width;
      }
      const auto gather = [&](const S* from, T* to) {
        for (int64_t row = 0; row < rows; ++row) {
          for_each_lanes<T>(run, [&](int64_t i, auto part) {
            store(to + row * run + i, load(from + at + row * pixels + i, part), part);
          });
        }
      };
      gather(x, buffers.x);
      if (dy != nullptr) {
        gather(dy, buffers.dy);
      }
      run_tile(p, channels * width, width, dy != nullptr, buffers);
      for (int64_t row = 0; row < rows; ++row) {
        store_run(run, buffers.sums + row * run, result + at + row * pixels);
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

}  // namespace norma::kernels::cpu
