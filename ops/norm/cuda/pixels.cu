#include "ops/norm/cuda/pixels.h"

#include "ops/norm/cuda/loops.h"

// Pixels: each column is a set, and weights vary from row to row alone (layer norm 2d in NCHW). A block goes over a
// tile of pixels and all their channels once for each sum and once for the result; after the first time the cache has
// them.

namespace norma::kernels::NORMA_BACKEND {

/// What the threads of a block know of the pixels of a tile, in shared memory behind the sums.
template <class T>
struct PixelStatistics {
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

  /// rstd is -1 where squares are lost.
  NORMA_DEVICE void put(int pixel, const SetStatistics<T>& of_pixel) const {
    mean[pixel] = of_pixel.mean;
    mean_low[pixel] = of_pixel.mean_low;
    rstd[pixel] = of_pixel.lost ? T(-1) : of_pixel.rstd;
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

template <class S, int width, bool crosses>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kMostPixelThreads)
    normalise_pixels(NormProblem problem, PixelPlan plan, NearStatistics<compute_t<S>> statistics,
                     ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  constexpr int kBatch = width >= 8 ? 2 : 4;  // more would not stay in registers
  const PixelPlace<width, crosses> place(problem.shape, plan);
  const PixelStatistics<T> of_tile(plan);
  T* shared = shared_memory<T>();
  const bool squares_about_zero =
      problem.statistics == Statistics::sum_of_squares && problem.centring != Centring::none;
  const int64_t image_size = int64_t{place.channels} * place.plane;
  for (int64_t tile = block(); tile < problem.shape.outer * plan.tiles; tile += blocks()) {
    const int64_t image = tile / plan.tiles;
    const int first_pixel = static_cast<int>(tile - image * plan.tiles) * plan.tile;
    const int64_t first_set = image * place.plane + first_pixel;
    const int64_t base = image * image_size;
    const S* x = arrays.x + base;
    const int vectors = place.vectors(plan, first_pixel);
    T mean[width] = {};
    T mean_low[width] = {};
    T rstd[width];
    if (problem.fixed_stats) {
      if (vectors > 0) {
        place.load_pixels(plan, arrays.mean + first_set, mean);
        place.load_pixels(plan, arrays.mean_low + first_set, mean_low);
        place.load_pixels(plan, arrays.rstd + first_set, rstd);
      }
    } else {
      if (!problem.raw_sums()) {  // the mean, nearly
        T sums[1][width] = {};
        T pivot[width];
        if (vectors > 0) {
          place.load_pixels(plan, x + first_pixel, pivot);
        }
        for_each_pixel_vector<kBatch, S, width>(place, plan, x, first_pixel, vectors,
                                                [&](int, int, const T(&of)[width]) {
                                                  NORMA_UNROLL
                                                  for (int j = 0; j < width; ++j) {
                                                    sums[0][j] += of[j] - pivot[j];
                                                  }
                                                });
        add_pixels(plan, sums, shared, [&](int pixel, const T(&totals)[1]) {
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
        if (thread() < plan.used) {
          place.load_pixels(plan, of_tile.mean, mean);
          place.load_pixels(plan, of_tile.mean_low, mean_low);
        }
      }
      T sums[2][width] = {};
      for_each_pixel_vector<kBatch, S, width>(place, plan, x, first_pixel, vectors, [&](int, int, const T(&of)[width]) {
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          const T d = (of[j] - mean[j]) - mean_low[j];
          sums[0][j] += d;
          sums[1][j] = fused_multiply_add(d, d, sums[1][j]);
        }
      });
      add_pixels(plan, sums, shared, [&](int pixel, const T(&totals)[2]) {
        const bool there = pixel < plan.tile && first_pixel + pixel < place.plane;
        SetStatistics<T> of_pixel{};
        if (there) {
          if (squares_about_zero) {
            of_pixel = statistics_of<T>(problem, {0, static_cast<double>(totals[0]), static_cast<double>(totals[1])});
          } else {
            const bool raw = problem.raw_sums();
            of_pixel = statistics.of(raw ? T(0) : of_tile.mean[pixel], raw ? T(0) : of_tile.mean_low[pixel], totals[0],
                                     totals[1]);
          }
          if (!of_pixel.lost) {
            store_set(problem, arrays, first_set + pixel, of_pixel);
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
      if (of_tile.any_lost(plan)) {
        for (int pixel = thread() / kWarp; pixel < plan.tile; pixel += threads() / kWarp) {
          // The first lane alone reads what it may overwrite.
          const T rstd_of_pixel = shuffle(lane() == 0 ? of_tile.rstd[pixel] : T(0), 0);
          if (rstd_of_pixel == T(-1)) {
            const T var = shuffle(lane() == 0 ? of_tile.var[pixel] : T(0), 0);
            const SetStatistics<T> plain{T(0), T(0), T(1) / std::sqrt(var), var, true};
            const auto scaled = scaled_statistics(problem, arrays.x, first_set + pixel, LaneTeam(), plain);
            if (lane() == 0) {
              of_tile.put(pixel, {scaled.mean, scaled.mean_low, scaled.rstd, scaled.var, false});
              store_set(problem, arrays, first_set + pixel, scaled);
            }
          }
        }
        sync_threads();
      }
      if (vectors > 0) {
        place.load_pixels(plan, of_tile.mean, mean);
        place.load_pixels(plan, of_tile.mean_low, mean_low);
        place.load_pixels(plan, of_tile.rstd, rstd);
      }
      if (problem.centring == Centring::deviation) {
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          mean[j] = T(0);
          mean_low[j] = T(0);
        }
      }
    }
    if (arrays.y == nullptr) {
      continue;
    }
    for_each_pixel_vector<kPixelBatch, S, width>(
        place, plan, x, first_pixel, vectors, [&](int channel, int at, const T(&of)[width]) {
          T weight[width];
          T bias[width];
          place.load_weights(arrays.weight, channel, T(1), weight);
          place.load_weights(arrays.bias, channel, T(0), bias);
          write_normalised(arrays, base + at, of, [&](int j) {
            return Normaliser<T>{mean[j], mean_low[j], rstd[j] * weight[j], bias[j]};
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
  const int64_t image_size = int64_t{place.channels} * place.plane;
  constexpr int kSums = ChannelSums<T, width, crosses>::kSums;
  const auto most_vectors = static_cast<int>(ceil_div(place.channels, plan.rows));
  for (int64_t tile = block(); tile < problem.shape.outer * plan.tiles; tile += blocks()) {
    const int64_t image = tile / plan.tiles;
    const int first_pixel = static_cast<int>(tile - image * plan.tiles) * plan.tile;
    const int64_t first_set = image * place.plane + first_pixel;
    const int64_t base = image * image_size;
    const int vectors = place.vectors(plan, first_pixel);
    T mean[width];
    T mean_low[width];
    T rstd[width];
    if (vectors > 0) {
      place.load_pixels(plan, arrays.mean + first_set, mean);
      place.load_pixels(plan, arrays.mean_low + first_set, mean_low);
      place.load_pixels(plan, arrays.rstd + first_set, rstd);
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
            return Normaliser<T>{mean[j], mean_low[j], rstd[j] * weight[j], bias[j]};
          },
          dz);
    };
    T sums[2][width] = {};
    const int64_t first_offset = base + place.offset(first_pixel);
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
              const T xhat = ((x[i][j] - mean[j]) - mean_low[j]) * rstd[j];
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
          if (first_pixel + pixel < place.plane) {
            const T of_pixel = arrays.rstd[first_set + pixel];
            gradient = gradients.of<T>(of_pixel, totals[0], totals[1]);
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
    T centre[width];
    T centre_low[width];
    if (vectors > 0) {
      place.load_pixels(plan, (arrays.centre == nullptr ? arrays.mean : arrays.centre) + first_set, centre);
      place.load_pixels(plan, (arrays.centre == nullptr ? arrays.mean_low : arrays.centre_low) + first_set, centre_low);
    }
    for_each_pixel_vector<kPixelBatch, S, width>(
        place, plan, arrays.x + base, first_pixel, vectors, [&](int channel, int of_image, const T(&x)[width]) {
          const int64_t at = base + of_image;
          T weight[width];
          T dz[width];
          load<S, width>(arrays.dy + at, dz);
          make_dz(channel, at, x, weight, dz);
          if (problem.fixed_stats) {
            NORMA_UNROLL
            for (int j = 0; j < width; ++j) {
              dz[j] *= rstd[j] * weight[j];
            }
          } else {
            NORMA_UNROLL
            for (int j = 0; j < width; ++j) {
              // rstd by_xhat may leave the range of T where this product does not.
              const T xhat = ((x[j] - centre[j]) - centre_low[j]) * rstd[j];
              dz[j] = fused_multiply_add(dz[j], rstd[j] * weight[j], fused_multiply_add(xhat, by_xhat[j], shift[j]));
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
      const int64_t resident = resident_blocks(normalise_pixels<S, width, crosses>, plan.threads(), shared_bytes);
      launch(std::min(plan.all_tiles(problem.shape), kTimes * resident), plan.threads(), shared_bytes, current_stream(),
             normalise_pixels<S, width, crosses>, problem, plan, NearStatistics<T>(problem), typed);
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
