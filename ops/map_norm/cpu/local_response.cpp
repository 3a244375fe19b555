#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/local_response.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/half.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/math.h"
#include "core/sizes.h"
#include "ops/map_norm/kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

// Two walks over tiles that stay in the cache. Planes: a channel is a run of memory and its neighbours are other runs.
// Pixels (channels_last): the channels of a pixel are a run, which is copied between zeros.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

namespace {

// --- formulas -------------------------------------------------------------------------------------------------------

template <class T>
struct Powers {
  Lanes<T> power;    ///< s^-beta
  Lanes<T> inverse;  ///< 1 / s
};

/// Powers for beta = 3/4 and normal numbers s, to 2 units in float.
struct ThreeQuarters {
  HWY_INLINE Powers<float> operator()(const Lanes<float>& s) const {
    // r = s^-1/4 to 3 % from the bits of s; its error is e = 1 - s r^4.
    using R = hn::Vec<Tag<float>>;
    Lanes<float> r = by_register(
        [](R v) HWY_ATTR {
          const auto quarter = hn::ShiftRight<2>(hn::BitCast(Words{}, v));
          return hn::BitCast(Tag<float>{}, hn::Sub(hn::Set(Words{}, 0x4F581800U), quarter));
        },
        s);
    const auto one = broadcast(1.0F);
    const auto error = [&](const Lanes<float>& square) HWY_ATTR { return one - (s * square) * square; };
    // (1 - e)^-1/4 = 1 + e / 4 + 5/32 e^2 + 15/128 e^3 + …
    const Lanes<float> e = error(r * r);
    const Lanes<float> series =
        multiply_add(e, multiply_add(e, broadcast(15.0F / 128), broadcast(5.0F / 32)), broadcast(0.25F));
    r = multiply_add(r * e, series, r);
    // s^-3/4 = r^3 (1 - e)^-3/4 = r^3 (1 + 3/4 e + 21/32 e^2 + …);  1 / s = r^4 (1 + e + …)
    const Lanes<float> square = r * r;
    const Lanes<float> rest = multiply_add(broadcast(0.0F) - s * square, square, one);
    const Lanes<float> cube = square * r;
    const Lanes<float> fourth = square * square;
    return {multiply_add(cube * rest, multiply_add(rest, broadcast(21.0F / 32), broadcast(0.75F)), cube),
            multiply_add(fourth, rest, fourth)};
  }
  HWY_INLINE Powers<double> operator()(const Lanes<double>& s) const {
    const Lanes<double> root = sqrt(s);
    return {1.0 / (root * sqrt(root)), 1.0 / s};
  }
};

struct AnyPower {
  double beta;
  template <class R, int n, class T = hn::TFromV<R>>
  HWY_INLINE Powers<T> operator()(const Parts<R, n>& s) const {
    T numbers[kLanes<T>];
    store(static_cast<T*>(numbers), s, Whole{});
    for (T& number : numbers) {
      number = std::pow(number, static_cast<T>(-beta));
    }
    return {load(static_cast<const T*>(numbers), Whole{}), T(1) / s};
  }
};

/// The formulas of one call, vector by vector.
template <class T, class Power>
struct Response {
  T k;
  T scale;
  T factor;  ///< -2 * scale * beta
  bool relu;
  Power power_of;
  ResponseLimits<T> limits;
  Lanes<T> smallest = broadcast(T(1));  ///< the smallest of the sums so far
  Lanes<T> largest = broadcast(T(1));

  Response(const LocalResponseProblem& p, bool gradient, Power power)
      : k(static_cast<T>(p.k)),
        scale(static_cast<T>(p.scale)),
        factor(static_cast<T>(-2 * p.scale * p.beta)),
        relu(p.relu),
        power_of(power),
        limits(p.beta, gradient) {}

  /// s from a sum of squares.
  template <class Part>
  HWY_INLINE Lanes<T> sum(const Lanes<T>& squares, Part part) {
    Lanes<T> s = multiply_add(squares, broadcast(scale), broadcast(k));
    if constexpr (std::is_same_v<Part, First>) {
      s = select(first_lanes<T>(part.count), s, broadcast(T(1)));
    }
    smallest = select(s < smallest, s, smallest);
    largest = select(largest < s, s, largest);
    return s;
  }
  [[nodiscard]] HWY_INLINE bool is_in_range() const {
    return bits_of<T>(smallest < limits.least) == 0 && bits_of<T>(broadcast(limits.most) < largest) == 0;
  }

  HWY_INLINE Lanes<T> value(const Lanes<T>& x, const Lanes<T>& s) const {
    const Lanes<T> y = x * power_of(s).power;
    return relu ? zero_where(y <= 0, y) : y;
  }

  struct Gradient {
    Lanes<T> direct;  ///< dy * s^-beta
    Lanes<T> share;   ///< dy * x * s^(-beta - 1)
  };
  HWY_INLINE Gradient gradient(const Lanes<T>& dy, const Lanes<T>& x, const Lanes<T>& s) const {
    const Powers<T> p = power_of(s);
    const Lanes<T> direct = (relu ? zero_where(x * p.power <= 0, dy) : dy) * p.power;
    return {direct, direct * x * p.inverse};
  }
  HWY_INLINE Lanes<T> dx(const Lanes<T>& x, const Lanes<T>& direct, const Lanes<T>& shares) const {
    return multiply_add(x, shares * factor, direct);
  }
};

// --- plain loops ----------------------------------------------------------------------------------------------------

/// A part of a tensor: all channels of some pixels.
struct ResponseTile {
  int64_t channels;
  int64_t pixels;
  int64_t channel_stride;
  int64_t pixel_stride;
};

/// LocalResponse in double and in plain loops. It serves where the sum of squares, or a power of it, leaves the range
/// of float32. dy: null for y.
template <class S>
[[gnu::cold]] void local_response_in_double(const LocalResponseProblem& p, const ResponseTile& tile, const S* x,
                                            const S* dy, S* result) {
  const auto number = [](S element) { return static_cast<double>(static_cast<compute_t<S>>(element)); };
  const int64_t channels = tile.channels;
  Scratch scratch;
  double* squares = scratch.take<double>(channels);
  double* power = scratch.take<double>(channels);
  double* shares = scratch.take<double>(channels);
  const auto sum = [channels](const double* of, int64_t first, int64_t last) {
    double total = 0;
    for (int64_t c = std::max<int64_t>(first, 0); c <= std::min(last, channels - 1); ++c) {
      total += of[c];
    }
    return total;
  };
  for (int64_t pixel = 0; pixel < tile.pixels; ++pixel) {
    const auto at = [&](int64_t c) { return pixel * tile.pixel_stride + c * tile.channel_stride; };
    for (int64_t c = 0; c < channels; ++c) {
      squares[c] = number(x[at(c)]) * number(x[at(c)]);
    }
    for (int64_t c = 0; c < channels; ++c) {
      const double s = p.k + p.scale * sum(squares, c - p.below, c + p.above);
      power[c] = std::pow(s, -p.beta);
      const double y = number(x[at(c)]) * power[c];
      const bool is_cut = p.relu && y <= 0;
      if (dy == nullptr) {
        result[at(c)] = static_cast<S>(static_cast<compute_t<S>>(is_cut ? 0 : y));
      } else {
        power[c] = is_cut ? 0 : power[c];
        shares[c] = number(dy[at(c)]) * number(x[at(c)]) * (power[c] / s);
      }
    }
    for (int64_t c = 0; dy != nullptr && c < channels; ++c) {
      const double through_sums = -2 * p.scale * p.beta * sum(shares, c - p.above, c + p.below);
      const double dx = number(dy[at(c)]) * power[c] + number(x[at(c)]) * through_sums;
      result[at(c)] = static_cast<S>(static_cast<compute_t<S>>(dx));
    }
  }
}

// --- walks ----------------------------------------------------------------------------------------------------------
// Each walk works on one tile. It returns false where the range of T is too small; its results are of no use then.

/// Numbers in a row of a tile of planes.
constexpr int64_t kRowNumbers = 512;
/// Numbers of a tile of pixels.
constexpr int64_t kTileNumbers = 2048;

/// ring: two rings of p.below + p.above + 1 rows of tile.pixels numbers, for the channels that wait for others.
template <class S, class R>
bool run_planes(const LocalResponseProblem& p, const ResponseTile& tile, const S* x, const S* dy, S* result, R response,
                compute_t<S>* ring) {
  using T = compute_t<S>;
  const int64_t stride = tile.channel_stride;
  const int64_t window = p.below + p.above + 1;
  const int64_t last = tile.channels - 1;
  T* share_rows = ring + window * tile.pixels;
  const auto sums = [&](int64_t c) {
    const int64_t from = std::max<int64_t>(c - p.below, 0);
    const int64_t to = std::min(c + p.above, last);
    T* direct = ring + c % window * tile.pixels;
    T* share = share_rows + c % window * tile.pixels;
    for_each_lanes<T>(tile.pixels, [&](int64_t i, auto part) NORMA_INLINE {
      Lanes<T> squares = {};
      for (int64_t other = from; other <= to; ++other) {
        const Lanes<T> value = load(x + other * stride + i, part);
        squares = multiply_add(value, value, squares);
      }
      const Lanes<T> s = response.sum(squares, part);
      const Lanes<T> at = load(x + c * stride + i, part);
      if (dy == nullptr) {
        store(result + c * stride + i, response.value(at, s), part);
      } else {
        const auto gradient = response.gradient(load(dy + c * stride + i, part), at, s);
        store(direct + i, gradient.direct, part);
        store(share + i, gradient.share, part);
      }
    });
  };
  const auto gradient = [&](int64_t c) {
    const int64_t from = std::max<int64_t>(c - p.above, 0);
    const int64_t to = std::min(c + p.below, last);
    const int64_t first = from % window;
    const T* direct = ring + c % window * tile.pixels;
    for_each_lanes<T>(tile.pixels, [&](int64_t i, auto part) NORMA_INLINE {
      Lanes<T> shares = {};
      for (int64_t other = from, row = first; other <= to; ++other) {
        shares += load(static_cast<const T*>(share_rows) + row * tile.pixels + i, part);
        row = row + 1 == window ? 0 : row + 1;
      }
      store(result + c * stride + i, response.dx(load(x + c * stride + i, part), load(direct + i, part), shares), part);
    });
  };
  for (int64_t c = 0; c <= last; ++c) {
    sums(c);
    if (dy != nullptr && c >= p.below) {
      gradient(c - p.below);
    }
  }
  for (int64_t c = std::max<int64_t>(last + 1 - p.below, 0); dy != nullptr && c <= last; ++c) {
    gradient(c);
  }
  return response.is_in_range();
}

/// The memory of a thread for pixels: rows of `stride` numbers, of which p.below + p.above stay 0.
template <class T>
struct PixelRows {
  int64_t stride;
  T* x;
  T* shares;
  T* direct;

  PixelRows(Scratch& scratch, int64_t rows, int64_t row_stride)
      : stride(row_stride),
        x(scratch.zeros<T>(rows * stride)),
        shares(scratch.zeros<T>(rows * stride)),
        direct(scratch.take<T>(rows * stride)) {}
};

template <class S, class R>
bool run_pixels(const LocalResponseProblem& p, const ResponseTile& tile, const S* x, const S* dy, S* result, R response,
                const PixelRows<compute_t<S>>& rows) {
  using T = compute_t<S>;
  const int64_t window = p.below + p.above + 1;
  const auto each = [&](auto f) {
    for (int64_t pixel = 0; pixel < tile.pixels; ++pixel) {
      for_each_lanes<T>(tile.channels, [&](int64_t i, auto part) NORMA_INLINE {
        f(pixel * rows.stride + i, pixel * tile.pixel_stride + i, part);
      });
    }
  };
  each([&](int64_t i, int64_t at, auto part) { store(rows.x + p.below + i, load(x + at, part), part); });
  each([&](int64_t i, int64_t at, auto part) {
    Lanes<T> squares = {};
    for (int64_t j = 0; j < window; ++j) {  // lanes after `part` hold the next numbers
      const Lanes<T> value = load(static_cast<const T*>(rows.x) + i + j, Whole{});
      squares = multiply_add(value, value, squares);
    }
    const Lanes<T> s = response.sum(squares, part);
    const Lanes<T> here = load(static_cast<const T*>(rows.x) + p.below + i, Whole{});
    if (dy == nullptr) {
      store(result + at, response.value(here, s), part);
    } else {
      const auto gradient = response.gradient(load(dy + at, part), here, s);
      store(rows.direct + i, gradient.direct, part);
      store(rows.shares + p.above + i, gradient.share, part);
    }
  });
  if (dy != nullptr) {
    each([&](int64_t i, int64_t at, auto part) {
      Lanes<T> shares = {};
      for (int64_t j = 0; j < window; ++j) {
        shares += load(static_cast<const T*>(rows.shares) + i + j, Whole{});
      }
      const Lanes<T> here = load(static_cast<const T*>(rows.x) + p.below + i, Whole{});
      store(result + at, response.dx(here, load(static_cast<const T*>(rows.direct) + i, Whole{}), shares), part);
    });
  }
  return response.is_in_range();
}

/// Runs all tiles. dy: null for y.
template <class S, class R>
void run_tiles(const LocalResponseProblem& p, const S* x, const S* dy, S* result, const R& response) {
  using T = compute_t<S>;
  const MapShape& shape = p.shape;
  const int64_t channels = shape.channels;
  const int64_t reach = p.below + p.above;
  const bool pixels_lie_apart = shape.channels_last;  // otherwise side by side
  const int64_t outer = pixels_lie_apart ? 1 : shape.outer;
  const int64_t pixels = pixels_lie_apart ? shape.outer * shape.inner : shape.inner;
  const int64_t most = pixels_lie_apart ? std::max<int64_t>(1, kTileNumbers / channels) : kRowNumbers;
  const int64_t width = std::min(pixels, most);
  const int64_t tiles = ceil_div(pixels, width);
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (channels * width));
  parallel_for(0, outer * tiles, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const PixelRows<T> rows(scratch, pixels_lie_apart ? width : 0, channels + reach);
    T* ring = scratch.take<T>(pixels_lie_apart ? 0 : 2 * (reach + 1) * width);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = t % tiles * width;
      const ResponseTile tile{.channels = channels,
                              .pixels = std::min(width, pixels - first),
                              .channel_stride = pixels_lie_apart ? 1 : pixels,
                              .pixel_stride = pixels_lie_apart ? channels : 1};
      const int64_t at = t / tiles * channels * pixels + first * tile.pixel_stride;
      const S* tile_dy = dy == nullptr ? nullptr : dy + at;
      const bool is_done = pixels_lie_apart ? run_pixels(p, tile, x + at, tile_dy, result + at, response, rows)
                                            : run_planes(p, tile, x + at, tile_dy, result + at, response, ring);
      if (!is_done) [[unlikely]] {
        local_response_in_double(p, tile, x + at, tile_dy, result + at);
      }
    }
  });
}

}  // namespace

void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays) {
  dispatch_any_floating("local_response_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    const bool gradient = arrays.dy != nullptr;
    const auto run = [&]<class Power>(Power power) {
      run_tiles(problem, static_cast<const S*>(arrays.x), static_cast<const S*>(arrays.dy),
                static_cast<S*>(arrays.result), Response<T, Power>(problem, gradient, power));
    };
    problem.beta == 0.75 ? run(ThreeQuarters{}) : run(AnyPower{problem.beta});
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays) {
  NORMA_SIMD_CALL(local_response)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif
