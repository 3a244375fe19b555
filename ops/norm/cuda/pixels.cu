#include "ops/norm/cuda/loops.h"

#include <algorithm>
#include <numeric>

// Pixels: each column is a set, and weights vary from row to row alone (layer norm 2d in NCHW). A block goes over a
// tile of pixels and all their channels once for each sum and once for the result; after the first time the cache has
// them.

namespace norma::kernels::NORMA_BACKEND {

// --- how threads share pixels and channels, and how they add up -----------------------------------------------------

// A block takes a tile: some neighbouring pixels of an image, with all their channels. Each thread has a vector of
// pixels, and of the channels every `rows`-th, so it has the same pixels all the way. Numbered along the tile's pixels
// and then along the channels, its first element is thread · width: that gives its pixel and its first channel. Where a
// plane is no multiple of a vector, the tile is a whole plane and vectors go from one plane to the next.

inline constexpr int kMostPixelThreads = 512;
/// Vectors that a thread of backward takes between two barriers; it loads kPixelBatch at a time.
inline constexpr int kPixelRound = 4;
inline constexpr int kPixelBatch = 2;

/// The longest sets of these kernels. In sums of T by a thread, what is added behind a large square loses its digits.
/// In backward, shared memory holds two numbers for each channel.
inline constexpr int64_t kMostPixelChannels = 4000;

bool are_pixels(const NormProblem& problem) {
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
  if (channels * plane > INT32_MAX / 8) {  // a thread counts on in int by some rounds of channels behind the last one
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

// --- forward --------------------------------------------------------------------------------------------------------

/// The place of a tile: some neighbouring pixels of an image.
struct PixelTile {
  int first_pixel;
  int64_t first_set;
  int64_t base;  ///< offset of the image

  /// Tile number `which` of all.
  NORMA_DEVICE PixelTile(const NormShape& shape, const PixelPlan& plan, int64_t which) {
    const int64_t image = which / plan.tiles;
    first_pixel = static_cast<int>(which - image * plan.tiles) * plan.tile;
    first_set = image * shape.kept + first_pixel;
    base = image * (shape.reduce_outer * shape.kept);
  }
};

/// What the threads of a block know of the pixels of a tile, in shared memory behind the sums.
template <class T>
struct PixelStatistics {
  /// Stands in place of rstd, which is not negative, where the squares of a pixel are lost.
  static constexpr T kLost = T(-1);

  T* mean;
  T* mean_low;
  T* rstd;
  T* var;
  T* lost;  ///< of each 32 pixels: 1 if one of them has lost its squares

  NORMA_DEVICE explicit PixelStatistics(const PixelPlan& plan)
      : mean(shared_memory<T>() + 2 * plan.brought()),
        mean_low(mean + plan.tile),
        rstd(mean_low + plan.tile),
        var(rstd + plan.tile),
        lost(var + plan.tile) {}
  static size_t bytes(const PixelPlan& plan) { return (2 * plan.brought() + 4 * plan.tile + kWarp) * sizeof(T); }

  NORMA_DEVICE void put(int pixel, const SetStatistics<T>& of_pixel) const {
    mean[pixel] = of_pixel.mean;
    mean_low[pixel] = of_pixel.mean_low;
    rstd[pixel] = of_pixel.lost ? kLost : of_pixel.rstd;
    var[pixel] = of_pixel.var;
  }
  /// True iff any pixel of the tile has lost its squares: the same for all threads.
  NORMA_DEVICE bool any_lost(const PixelPlan& plan) const {
    T any = 0;
    for (int first = 0; first < plan.tile; first += kWarp) {
      any += lost[first / kWarp];
    }
    return any != T(0);
  }
};

/// mean, mean_low and rstd of the pixels of a thread's vectors.
template <class T, int width>
struct VectorStatistics {
  T mean[width] = {};
  T mean_low[width] = {};
  T rstd[width];

  /// `from` has the statistics of the pixels of a tile, from number `first` on.
  template <class Place, class From>
  NORMA_DEVICE void load(const Place& place, const PixelPlan& plan, const From& from, int64_t first) {
    place.load_pixels(plan, from.mean + first, mean);
    place.load_pixels(plan, from.mean_low + first, mean_low);
    place.load_pixels(plan, from.rstd + first, rstd);
  }
};

/// Puts a mean of each pixel that is nearly right into `of_tile`, from one pass over the tile.
template <int batch, class S, int width, class Place, class T = compute_t<S>>
NORMA_DEVICE void find_near_means(const Place& place, const PixelPlan& plan, const NearStatistics<T>& statistics,
                                  const S* x, int first_pixel, int vectors, const PixelStatistics<T>& of_tile) {
  T sums[1][width] = {};
  T pivot[width];
  if (vectors > 0) {
    place.load_pixels(plan, x + first_pixel, pivot);
  }
  for_each_pixel_vector<batch, S, width>(place, plan, x, first_pixel, vectors, [&](int, int, const T(&of)[width]) {
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      sums[0][j] += of[j] - pivot[j];
    }
  });
  add_pixels(plan, sums, shared_memory<T>(), [&](int pixel, const T(&totals)[1]) {
    if (pixel < plan.tile) {
      T near = 0;
      T near_low = 0;
      if (first_pixel + pixel < place.plane) {
        statistics.near_mean(to_number(x[first_pixel + pixel]), totals[0], near, near_low);
      }
      of_tile.mean[pixel] = near;
      of_tile.mean_low[pixel] = near_low;
    }
  });
  sync_threads();
}

/// Stores the statistics of each pixel, and puts them into `of_tile`, from a pass over the tile. `near`: the means of
/// this thread's pixels, nearly, or 0 for raw sums.
template <int batch, int width, class S, class Place, class T = compute_t<S>>
NORMA_DEVICE void find_statistics(const NormProblem& problem, const Place& place, const PixelPlan& plan,
                                  const NearStatistics<T>& statistics, const ForwardArrays<S>& arrays,
                                  const PixelTile& tile, int vectors, const VectorStatistics<T, width>& near,
                                  const PixelStatistics<T>& of_tile) {
  const bool raw = problem.raw_sums();
  const bool squares_about_zero = raw && problem.centring != Centring::none;
  T sums[2][width] = {};
  for_each_pixel_vector<batch, S, width>(place, plan, arrays.x + tile.base, tile.first_pixel, vectors,
                                         [&](int, int, const T(&of)[width]) {
                                           NORMA_UNROLL
                                           for (int j = 0; j < width; ++j) {
                                             const T d = (of[j] - near.mean[j]) - near.mean_low[j];
                                             sums[0][j] += d;
                                             sums[1][j] = fused_multiply_add(d, d, sums[1][j]);
                                           }
                                         });
  add_pixels(plan, sums, shared_memory<T>(), [&](int pixel, const T(&totals)[2]) {
    SetStatistics<T> of_pixel{};
    if (pixel < plan.tile && tile.first_pixel + pixel < place.plane) {
      of_pixel = squares_about_zero
                     ? statistics_of<T>(problem, {0, static_cast<double>(totals[0]), static_cast<double>(totals[1])})
                     : statistics.of(raw ? T(0) : of_tile.mean[pixel], raw ? T(0) : of_tile.mean_low[pixel], totals[0],
                                     totals[1]);
      if (!of_pixel.lost) {
        store_set(arrays, tile.first_set + pixel, of_pixel);
      }
    }
    if (pixel < plan.tile) {
      of_tile.put(pixel, of_pixel);
    }
    const bool lost = any_lane(of_pixel.lost);
    if (lane() == 0) {
      of_tile.lost[pixel / kWarp] = lost ? T(1) : T(0);
    }
  });
  sync_threads();
}

/// Computes the statistics of the pixels that have lost their squares once more, with a warp for each.
template <class S, class T = compute_t<S>>
NORMA_DEVICE void mend_lost(const NormProblem& problem, const PixelPlan& plan, const ForwardArrays<S>& arrays,
                            int64_t first_set, const PixelStatistics<T>& of_tile) {
  for (int pixel = thread() / kWarp; pixel < plan.tile; pixel += threads() / kWarp) {
    // The first lane alone reads what it may overwrite.
    if (shuffle(lane() == 0 ? of_tile.rstd[pixel] : T(0), 0) == PixelStatistics<T>::kLost) {
      const T var = shuffle(lane() == 0 ? of_tile.var[pixel] : T(0), 0);
      const SetStatistics<T> plain{T(0), T(0), T(1) / std::sqrt(var), var, true};
      auto scaled = scaled_statistics(problem, arrays.x, first_set + pixel, LaneTeam(), plain);
      if (lane() == 0) {
        store_set(arrays, first_set + pixel, scaled);
        scaled.lost = false;
        of_tile.put(pixel, scaled);
      }
    }
  }
  sync_threads();
}

/// Writes y, and on the way the statistics unless they are fixed: a tile is read for the mean, for the squares about
/// it, and for y.
template <class S, int width, bool crosses>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kMostPixelThreads)
    normalize_pixels(NormProblem problem, PixelPlan plan, NearStatistics<compute_t<S>> statistics,
                     ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  constexpr int kBatch = width >= 8 ? 2 : 4;  // more would not stay in registers
  const PixelPlace<width, crosses> place(problem.shape, plan);
  const PixelStatistics<T> of_tile(plan);
  for (int64_t which = block(); which < problem.shape.outer * plan.tiles; which += blocks()) {
    const PixelTile tile(problem.shape, plan, which);
    const S* x = arrays.x + tile.base;
    const int vectors = place.vectors(plan, tile.first_pixel);
    VectorStatistics<T, width> stats;
    if (problem.fixed_stats) {
      if (vectors > 0) {
        stats.load(place, plan, arrays, tile.first_set);
      }
    } else {
      if (!problem.raw_sums()) {
        find_near_means<kBatch, S, width>(place, plan, statistics, x, tile.first_pixel, vectors, of_tile);
        if (thread() < plan.used) {
          place.load_pixels(plan, of_tile.mean, stats.mean);
          place.load_pixels(plan, of_tile.mean_low, stats.mean_low);
        }
      }
      find_statistics<kBatch>(problem, place, plan, statistics, arrays, tile, vectors, stats, of_tile);
      if (of_tile.any_lost(plan)) {
        mend_lost(problem, plan, arrays, tile.first_set, of_tile);
      }
      if (vectors > 0) {
        stats.load(place, plan, of_tile, 0);
      }
    }
    if (arrays.y == nullptr) {
      continue;
    }
    for_each_pixel_vector<kPixelBatch, S, width>(
        place, plan, x, tile.first_pixel, vectors, [&](int channel, int at, const T(&of)[width]) {
          T weight[width];
          T bias[width];
          place.load_weights(arrays.weight, channel, T(1), weight);
          place.load_weights(arrays.bias, channel, T(0), bias);
          write_normalized(arrays, tile.base + at, of, [&](int j) {
            return Normalizer<T>{stats.mean[j], stats.mean_low[j], stats.rstd[j] * weight[j], bias[j]};
          });
        });
  }
}

// --- backward -------------------------------------------------------------------------------------------------------

/// The sums of dz and dz · xhat of each channel, in shared memory: of a round's vectors, then of all tiles of a block.
/// A vector that crosses has sums for two channels.
template <class T, int width, bool crosses>
class ChannelSums {
 public:
  static constexpr int kSums = crosses ? 4 : 2;
  static constexpr size_t count(const PixelPlan& plan) { return size_t{kPixelRound} * kSums * plan.used; }

  /// `of_round` has room for count() numbers, `of_block` for two of each channel.
  NORMA_DEVICE ChannelSums(const PixelPlan& plan, int channels, T* of_round, T* of_block)
      : plan_(plan), channels_(channels), of_round_(of_round), of_block_(of_block) {
    for (int i = thread(); i < 2 * channels; i += threads()) {
      of_block_[i] = T(0);
    }
  }

  /// The sums of vector number i of this thread's round.
  NORMA_DEVICE void put(int i, const T (&sums)[kSums]) const {
    NORMA_UNROLL
    for (int k = 0; k < kSums; ++k) {
      of_round_[(i * kSums + k) * plan_.used + thread()] = sums[k];
    }
  }
  /// Adds those of a round whose first vectors are number `first` of each thread. All threads of the block call it.
  NORMA_DEVICE void add_round(int first) const {
    sync_threads();
    for (int item = thread(); item < kPixelRound * plan_.rows; item += threads()) {
      const int i = item / plan_.rows;
      const int row = item - i * plan_.rows;
      const int channel = first * plan_.rows + item;
      if (channel < channels_) {
        const T* of_vectors = of_round_ + i * kSums * plan_.used;
        const int begin = row * plan_.tile;
        const int end = begin + plan_.tile;
        int vector = begin / width;
        T sum = 0;
        T sum_xhat = 0;
        if (crosses && vector * width < begin) {  // its second part
          sum = of_vectors[2 * plan_.used + vector];
          sum_xhat = of_vectors[3 * plan_.used + vector];
          ++vector;
        }
        for (; vector * width < end; ++vector) {
          sum += of_vectors[vector];
          sum_xhat += of_vectors[plan_.used + vector];
        }
        of_block_[2 * channel] += sum;
        of_block_[2 * channel + 1] += sum_xhat;
      }
    }
    sync_threads();
  }
  /// Writes a row for the weights and one for the biases. All threads of the block call it.
  NORMA_DEVICE void write(T* partials) const {
    sync_threads();
    for (int channel = thread(); channel < channels_; channel += threads()) {
      partials[channel] = of_block_[2 * channel + 1];
      partials[channels_ + channel] = of_block_[2 * channel];
    }
  }

 private:
  const PixelPlan& plan_;
  int channels_;
  T* of_round_;
  T* of_block_;
};

/// Numbers in shared memory for the sums of pixels or those of a round, whichever are more.
template <class T, int width, bool crosses>
constexpr size_t pixel_sum_count(const PixelPlan& plan) {
  const size_t of_round = ChannelSums<T, width, crosses>::count(plan);
  const size_t of_pixels = 2 * static_cast<size_t>(plan.brought());
  return of_round > of_pixels ? of_round : of_pixels;
}

/// Writes dx and dresidual, and each block's part of the weight gradients: a row for the weights and one for the
/// biases. partials: null where they are not wanted.
template <class S, int width, bool crosses>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kMostPixelThreads)
    pixel_gradients(NormProblem problem, PixelPlan plan, InputGradients gradients, BackwardArrays<S> arrays,
                    compute_t<S>* partials) {
  using T = compute_t<S>;
  const PixelPlace<width, crosses> place(problem.shape, plan);
  T* shared = shared_memory<T>();
  T* by_xhat_of_tile = shared + pixel_sum_count<T, width, crosses>(plan);
  T* shift_of_tile = by_xhat_of_tile + plan.tile;
  const ChannelSums<T, width, crosses> of_channels(plan, partials == nullptr ? 0 : place.channels, shared,
                                                   shift_of_tile + plan.tile);
  constexpr int kSums = ChannelSums<T, width, crosses>::kSums;
  const auto most_vectors = static_cast<int>(ceil_div(place.channels, plan.rows));
  for (int64_t which = block(); which < problem.shape.outer * plan.tiles; which += blocks()) {
    const PixelTile tile(problem.shape, plan, which);
    const int vectors = place.vectors(plan, tile.first_pixel);
    VectorStatistics<T, width> stats;
    if (vectors > 0) {
      stats.load(place, plan, arrays, tile.first_set);
    }
    /// Turns dy of a vector into dz, and loads its weights.
    const auto make_dz = [&](int channel, int64_t at, const T(&x)[width], T(&weight)[width], T(&dz)[width]) {
      place.load_weights(arrays.weight, channel, T(1), weight);
      T bias[width] = {};
      if (arrays.activation != Activation::identity && arrays.bits == nullptr) {
        place.load_weights(arrays.bias, channel, T(0), bias);
      }
      through_activations(
          arrays, at, x,
          [&](int j) {
            return Normalizer<T>{stats.mean[j], stats.mean_low[j], stats.rstd[j] * weight[j], bias[j]};
          },
          dz);
    };
    T sums[2][width] = {};
    const int64_t first_offset = tile.base + place.offset(tile.first_pixel);
    for (int first = 0; first < most_vectors; first += kPixelRound) {
      for (int of_round = 0; of_round < kPixelRound; of_round += kPixelBatch) {
        const int number = first + of_round;
        T x[kPixelBatch][width];
        T dz[kPixelBatch][width];
        NORMA_UNROLL
        for (int i = 0; i < kPixelBatch; ++i) {
          if (number + i < vectors) {
            load<S, width>(arrays.x + first_offset + (number + i) * place.stride, x[i]);
            load<S, width>(arrays.dy + first_offset + (number + i) * place.stride, dz[i]);
          }
        }
        NORMA_UNROLL
        for (int i = 0; i < kPixelBatch; ++i) {
          T of_vector[kSums] = {};
          if (number + i < vectors) {
            const int64_t at = first_offset + (number + i) * place.stride;
            T weight[width];
            make_dz(place.channel + (number + i) * plan.rows, at, x[i], weight, dz[i]);
            NORMA_UNROLL
            for (int j = 0; j < width; ++j) {
              const T g = dz[i][j] * weight[j];
              const T xhat = ((x[i][j] - stats.mean[j]) - stats.mean_low[j]) * stats.rstd[j];
              sums[0][j] += g;
              sums[1][j] = fused_multiply_add(g, xhat, sums[1][j]);
              if (!crosses || j < place.split) {
                of_vector[0] += dz[i][j];
                of_vector[1] = fused_multiply_add(dz[i][j], xhat, of_vector[1]);
              } else {
                of_vector[kSums - 2] += dz[i][j];
                of_vector[kSums - 1] = fused_multiply_add(dz[i][j], xhat, of_vector[kSums - 1]);
              }
            }
            if (arrays.dresidual != nullptr) {
              store<S, width>(arrays.dresidual + at, dz[i]);
            }
          }
          if (partials != nullptr && thread() < plan.used) {
            of_channels.put(of_round + i, of_vector);
          }
        }
      }
      if (partials != nullptr) {
        of_channels.add_round(first);
      }
    }
    if (arrays.dx == nullptr) {
      continue;
    }
    T by_xhat[width] = {};
    T shift[width] = {};
    if (!problem.fixed_stats) {
      add_pixels(plan, sums, shared, [&](int pixel, const T(&totals)[2]) {
        if (pixel < plan.tile) {
          InputGradient<T> gradient{};
          if (tile.first_pixel + pixel < place.plane) {
            const int64_t set = tile.first_set + pixel;
            gradient = gradients.of<T>(arrays.mean[set], arrays.rstd[set], totals[0], totals[1]);
          }
          by_xhat_of_tile[pixel] = gradient.by_xhat;
          shift_of_tile[pixel] = gradient.shift;
        }
      });
      sync_threads();
      if (vectors > 0) {
        place.load_pixels(plan, by_xhat_of_tile, by_xhat);
        place.load_pixels(plan, shift_of_tile, shift);
      }
    }
    for_each_pixel_vector<kPixelBatch, S, width>(
        place, plan, arrays.x + tile.base, tile.first_pixel, vectors,
        [&](int channel, int of_image, const T(&x)[width]) {
          const int64_t at = tile.base + of_image;
          T weight[width];
          T dz[width];
          load<S, width>(arrays.dy + at, dz);
          make_dz(channel, at, x, weight, dz);
          if (problem.fixed_stats) {
            NORMA_UNROLL
            for (int j = 0; j < width; ++j) {
              dz[j] *= stats.rstd[j] * weight[j];
            }
          } else {
            NORMA_UNROLL
            for (int j = 0; j < width; ++j) {
              // rstd by_xhat may leave the range of T where this product does not.
              const T xhat = ((x[j] - stats.mean[j]) - stats.mean_low[j]) * stats.rstd[j];
              dz[j] =
                  fused_multiply_add(dz[j], stats.rstd[j] * weight[j], fused_multiply_add(xhat, by_xhat[j], shift[j]));
            }
          }
          store<S, width>(arrays.dx + at, dz);
        });
  }
  if (partials != nullptr) {
    of_channels.write(partials + 2 * block() * place.channels);
  }
}

/// The most shared memory that a launch has without asking for more.
inline constexpr size_t kMostSharedBytes = 48 * 1024;

bool pixels_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  if (!are_pixels(problem) || arrays.bits != nullptr || arrays.running.mean != nullptr) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const ForwardArrays<S> typed(problem, arrays);
    const PixelPlan plan = plan_pixels(problem.shape, sizeof(S), are_aligned(typed));
    const size_t shared_bytes = PixelStatistics<T>::bytes(plan);
    if (plan.width == 0 || shared_bytes > kMostSharedBytes) {
      return false;
    }
    dispatch_pixels<S>(plan, [&](auto width, auto crosses) {
      constexpr int64_t kTimes = 4;  // as many blocks as run together: the last ones end at about the same time
      const int64_t resident = resident_blocks(normalize_pixels<S, width, crosses>, plan.threads(), shared_bytes);
      launch(std::min(plan.all_tiles(problem.shape), kTimes * resident), plan.threads(), shared_bytes, current_stream(),
             normalize_pixels<S, width, crosses>, problem, plan, NearStatistics<T>(problem), typed);
    });
    return true;
  });
}

bool pixels_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  if (!are_pixels(problem)) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const BackwardArrays<S> typed(problem, arrays);
    const PixelPlan plan = plan_pixels(problem.shape, sizeof(S), are_aligned(typed));
    const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
    const int64_t channels = problem.shape.reduce_outer;
    if (plan.width == 0) {
      return false;
    }
    bool fits = true;
    dispatch_pixels<S>(plan, [&](auto width, auto crosses) {
      const size_t of_channels = weights_wanted ? 2 * static_cast<size_t>(channels) : 0;
      const size_t shared_bytes =
          (pixel_sum_count<T, width, crosses>(plan) + 2 * static_cast<size_t>(plan.tile) + of_channels) * sizeof(T);
      fits = shared_bytes <= kMostSharedBytes;
      if (!fits) {
        return;
      }
      // Each block leaves a part of the weights' gradients, so there are no more than run at the same time.
      const int64_t resident = resident_blocks(pixel_gradients<S, width, crosses>, plan.threads(), shared_bytes);
      const int64_t blocks = std::min(plan.all_tiles(problem.shape), resident);
      const DeviceBuffer<T> partials(weights_wanted ? 2 * blocks * channels : 0);
      launch(blocks, plan.threads(), shared_bytes, current_stream(), pixel_gradients<S, width, crosses>, problem, plan,
             InputGradients(problem), typed, partials.data());
      if (weights_wanted) {
        launch_add_partials(channels, blocks, partials.data(), typed.dweight, typed.dbias);
      }
    });
    return fits;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
