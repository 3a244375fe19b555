#pragma once

#include "ops/norm/cuda/loops.h"

#include <algorithm>
#include <numeric>

// How the threads of pixels.cu share pixels and channels, and how they add up.
//
// A block takes a tile: some neighbouring pixels of an image, with all their channels. Each thread has a vector of
// pixels, and of the channels every `rows`-th, so it has the same pixels all the way. Numbered along the tile's pixels
// and then along the channels, its first element is thread · width: that gives its pixel and its first channel. Where a
// plane is no multiple of a vector, the tile is a whole plane and vectors go from one plane to the next.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kMostPixelThreads = 512;
/// Vectors that a thread of backward takes between two barriers; it loads kPixelBatch at a time.
inline constexpr int kPixelRound = 4;
inline constexpr int kPixelBatch = 2;

/// The longest sets of these kernels. In sums of T by a thread, what is added behind a large square loses its digits.
inline constexpr int64_t kMostPixelChannels = 2048;

/// True iff these kernels cover the case.
inline bool are_pixels(const NormProblem& problem) {
  const AffineShape& affine = problem.affine;
  const bool by_channel = affine.kept == 1 && affine.inner == 1 && affine.outer_period == 1;
  return !problem.shape.set_is_one_run() && problem.shape.reduce_inner == 1 &&
         problem.shape.reduce_outer <= kMostPixelChannels &&
         (!affine.present || (by_channel && affine.reduce_outer == problem.shape.reduce_outer));
}

struct PixelPlan {
  int width = 0;         ///< elements of a vector; 0: no plan
  bool crosses = false;  ///< vectors go from one plane to the next
  int tile = 0;          ///< pixels
  int rows = 0;          ///< channels that the threads take at once
  int used = 0;          ///< threads with a vector: rows · tile / width
  int parts = 0;         ///< threads that share the sums of a pixel: used / tile or 1
  int64_t tiles = 0;     ///< of a plane

  [[nodiscard]] int threads() const { return static_cast<int>(ceil_div(used, kWarp) * kWarp); }
  [[nodiscard]] int64_t all_tiles(const NormShape& shape) const { return shape.outer * tiles; }
  /// The numbers that the threads bring for one sum of each pixel.
  [[nodiscard]] constexpr int brought() const { return used * width; }
};

/// The plan for planes whose vectors may be of `width` elements.
inline PixelPlan plan_tiles(const NormShape& shape, int width, bool crosses, int64_t element_bytes, int most_threads) {
  const int64_t least_vectors = width >= 8 ? 8 : 12;  // of a thread, where there are so many channels
  constexpr int64_t kMostLanes = 64;
  const int64_t channels = shape.reduce_outer;
  const int64_t plane = shape.kept;
  PixelPlan plan{.width = width, .crosses = crosses};
  if (crosses) {
    const int64_t period = plane / std::gcd(plane, int64_t{width});  // vectors that begin and end with a plane
    const int64_t planes = period * width / plane;
    const int64_t times = std::min(most_threads / period, std::max<int64_t>(channels / planes / least_vectors, 1));
    plan.tile = static_cast<int>(plane);
    plan.tiles = 1;
    plan.rows = static_cast<int>(times * planes);
  } else {
    // A line of the cache is best; half of one leaves more tiles, and less of them for the first cache to hold.
    const int64_t bytes = channels <= 256 ? 128 : 64;
    const int64_t vectors = ceil_div(plane, width);
    const int64_t least_lanes = std::min(vectors, bytes / (width * element_bytes));
    const int64_t rows = std::clamp<int64_t>(ceil_div(channels, least_vectors), 1, most_threads / least_lanes);
    const int64_t lanes = std::min({most_threads / rows, vectors, kMostLanes});
    plan.tiles = ceil_div(vectors, lanes);
    plan.tile = static_cast<int>(ceil_div(vectors, plan.tiles) * width);
    plan.tiles = ceil_div(plane, plan.tile);
    plan.rows = static_cast<int>(std::min(rows, most_threads * int64_t{width} / plan.tile));
  }
  plan.used = plan.rows * plan.tile / width;
  plan.parts = std::max(plan.used / plan.tile, 1);
  return plan;
}

/// The plan for elements of `element_bytes` bytes. `aligned`: vectors of 16 bytes may be loaded from all operands.
inline PixelPlan plan_pixels(const NormShape& shape, int element_bytes, bool aligned) {
  const int whole = 16 / element_bytes;
  const int64_t channels = shape.reduce_outer;
  const int64_t plane = shape.kept;
  if (channels * plane > INT32_MAX) {
    return {};
  }
  // Many threads for many channels, unless shared memory has to hold the sums of too many channels beside theirs.
  const int threads = channels <= 128 || channels > 1024 ? kMostPixelThreads / 2 : kMostPixelThreads;
  if (aligned && plane % whole == 0) {
    return plan_tiles(shape, whole, false, element_bytes, threads);
  }
  if (aligned && plane % 4 == 0) {
    return plan_tiles(shape, 4, false, element_bytes, threads);
  }
  const bool crosses = plane > whole && plane / std::gcd(plane, int64_t{whole}) <= threads;
  if (aligned && crosses && channels * plane % whole == 0) {
    return plan_tiles(shape, whole, true, element_bytes, threads);
  }
  return plan_tiles(shape, 1, false, element_bytes, threads);
}

/// Calls f(std::integral_constant<int, width>, std::bool_constant<crosses>) for the plans that plan_pixels() gives.
template <class S, class F>
void dispatch_pixels(const PixelPlan& plan, F&& f) {
  constexpr int kWhole = kVectorOf<S>;
  if (plan.width == 1) {
    f(std::integral_constant<int, 1>{}, std::false_type{});
  } else if (plan.crosses) {
    f(std::integral_constant<int, kWhole>{}, std::true_type{});
  } else if (plan.width == kWhole) {
    f(std::integral_constant<int, kWhole>{}, std::false_type{});
  } else {
    f(std::integral_constant<int, 4>{}, std::false_type{});
  }
}

/// The place of a thread in a tile.
template <int width, bool crosses>
struct PixelPlace {
  int first;    ///< the number of the thread's first element
  int channel;  ///< of that
  int pixel;    ///< of the tile
  int split;    ///< elements from this on belong to the next channel
  int plane;
  int channels;
  int stride;  ///< from one vector of the thread to the next

  NORMA_DEVICE PixelPlace(const NormShape& shape, const PixelPlan& plan)
      : first(thread() * width),
        channel(first / plan.tile),
        pixel(first - channel * plan.tile),
        split(crosses ? plan.tile - pixel : width),
        plane(static_cast<int>(shape.kept)),
        channels(static_cast<int>(shape.reduce_outer)),
        stride(plan.rows * plane) {}

  /// The offset of the thread's first vector in the image.
  NORMA_DEVICE int offset(int first_pixel) const { return channel * plane + first_pixel + pixel; }
  /// The thread's vectors in a tile.
  NORMA_DEVICE int vectors(const PixelPlan& plan, int first_pixel) const {
    const bool there = thread() < plan.used && channel < channels && first_pixel + pixel < plane;
    return there ? (channels - 1 - channel) / plan.rows + 1 : 0;
  }
  /// Loads the numbers of the thread's pixels from those of the tile.
  template <class N>
  NORMA_DEVICE void load_pixels(const PixelPlan& plan, const N* of_tile, compute_t<N> (&to)[width]) const {
    if constexpr (crosses) {
      NORMA_UNROLL
      for (int j = 0; j < width; ++j) {
        const int at = pixel + j;
        to[j] = to_number(of_tile[at < plan.tile ? at : at - plan.tile]);
      }
    } else {
      load<N, width>(of_tile + pixel, to);
    }
  }
  /// Loads the weights of a vector's elements, or `otherwise` if `weights` is null.
  template <class T>
  NORMA_DEVICE void load_weights(const T* weights, int of_channel, T otherwise, T (&to)[width]) const {
    T here = otherwise;
    T next = otherwise;
    if (weights != nullptr) {
      here = weights[of_channel];
      next = crosses && of_channel + 1 < channels ? weights[of_channel + 1] : here;
    }
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      to[j] = j < split ? here : next;
    }
  }
};

/// Calls f(number, channel, offset, vector of x) for a thread's vectors, of which it loads `batch` at a time.
template <int batch, class S, int width, class Place, class F, class T = compute_t<S>>
NORMA_DEVICE void for_each_pixel_vector(const Place& place, const PixelPlan& plan, const S* x, int first_pixel,
                                        int vectors, F f) {
  int channel = place.channel;
  int at = place.offset(first_pixel);
  for (int first = 0; first < vectors; first += batch) {
    T numbers[batch][width];
    NORMA_UNROLL
    for (int i = 0; i < batch; ++i) {
      if (first + i < vectors) {
        load<S, width>(x + at + i * place.stride, numbers[i]);
      }
    }
    NORMA_UNROLL
    for (int i = 0; i < batch; ++i) {
      if (first + i < vectors) {
        f(channel + i * plan.rows, at + i * place.stride, numbers[i]);
      }
    }
    channel += batch * plan.rows;
    at += batch * place.stride;
  }
}

/// Adds up `count` sums of each pixel, in an order that is always the same, and calls f(pixel, totals) in one thread
/// for each. Warps call f together: f gets pixels behind the last one as well. shared: plan.brought() numbers for each
/// sum; the threads use it until the next barrier.
template <int count, int width, class T, class F>
NORMA_DEVICE void add_pixels(const PixelPlan& plan, const T (&sums)[count][width], T* shared, F f) {
  const int brought = plan.used * width;
  if (thread() < plan.used) {
    NORMA_UNROLL
    for (int i = 0; i < count; ++i) {
      NORMA_UNROLL
      for (int j = 0; j < width; ++j) {
        shared[i * brought + thread() * width + j] = sums[i][j];
      }
    }
  }
  sync_threads();
  int end = brought;
  if (plan.parts > 1) {
    end = plan.parts * plan.tile;
    T totals[count] = {};
    for (int at = thread(); thread() < end && at < brought; at += end) {
      NORMA_UNROLL
      for (int i = 0; i < count; ++i) {
        totals[i] += shared[i * brought + at];
      }
    }
    sync_threads();
    if (thread() < end) {
      NORMA_UNROLL
      for (int i = 0; i < count; ++i) {
        shared[i * brought + thread()] = totals[i];
      }
    }
    sync_threads();
  }
  for (int first = thread() - lane(); first < plan.tile; first += threads()) {
    const int pixel = first + lane();
    T totals[count] = {};
    for (int at = pixel; pixel < plan.tile && at < end; at += plan.tile) {
      NORMA_UNROLL
      for (int i = 0; i < count; ++i) {
        totals[i] += shared[i * brought + at];
      }
    }
    f(pixel, totals);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
