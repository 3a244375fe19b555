#include "ops/norm/cuda/statistics.h"
#include "ops/norm/cuda/walks.h"

#include <algorithm>

// Pixels: each column is a set, and weights vary from row to row alone (layer norm 2d in NCHW). A lane holds a pixel,
// the warps of a block share its channels, all in registers: x is read once, and nothing is transposed.

namespace norma::kernels::NORMA_BACKEND {

/// The number of channels that a thread holds, and of warps that share the channels of a pixel.
struct PixelPlan {
  int held = 0;  ///< 0: too many channels
  int warps = 0;
};

inline PixelPlan plan_pixels(int64_t channels, int most_held) {
  constexpr int kMostWarps = 16;
  for (const int held : {4, 8, 16, 32}) {
    const int64_t warps = ceil_div(channels, held);
    if (held <= most_held && warps <= kMostWarps) {
      return {held, static_cast<int>(warps)};
    }
  }
  return {};
}

/// Calls f(std::integral_constant<int, held>).
template <int most, class F>
void dispatch_held(int held, F&& f) {
  switch (held) {
    case 4: return f(std::integral_constant<int, 4>{});
    case 8: return f(std::integral_constant<int, 8>{});
    case 16: return f(std::integral_constant<int, 16>{});
    default:
      if constexpr (most >= 32) {
        return f(std::integral_constant<int, 32>{});
      }
  }
}

/// The threads that share a lane's pixel: one of each warp.
class PixelTeam {
 public:
  /// The bytes of shared memory for `warps` warps.
  static constexpr size_t bytes(int warps) { return static_cast<size_t>(warps) * 2 * kWarp * sizeof(double); }

  NORMA_DEVICE explicit PixelTeam(double* shared) : shared_(shared) {}
  NORMA_DEVICE int rank() const { return thread() / kWarp; }
  NORMA_DEVICE int size() const { return threads() / kWarp; }

  NORMA_DEVICE void sum(double& a, double& b) const {
    put(a, b);
    a = 0;
    b = 0;
    for (int warp = 0; warp < size(); ++warp) {
      a += shared_[(2 * warp) * kWarp + lane()];
      b += shared_[(2 * warp + 1) * kWarp + lane()];
    }
    sync_threads();
  }
  NORMA_DEVICE double sum(double value) const {
    double unused = 0;
    sum(value, unused);
    return value;
  }
  NORMA_DEVICE double largest(double value) const {
    put(value, 0);
    for (int warp = 0; warp < size(); ++warp) {
      const double other = shared_[2 * warp * kWarp + lane()];
      value = other > value ? other : value;
    }
    sync_threads();
    return value;
  }
  /// True iff `value` is true in any thread of the block. It is the same for the threads of a team.
  NORMA_DEVICE bool any(bool value) const { return any_lane(value); }

 private:
  NORMA_DEVICE void put(double a, double b) const {
    shared_[(2 * rank()) * kWarp + lane()] = a;
    shared_[(2 * rank() + 1) * kWarp + lane()] = b;
    sync_threads();
  }

  double* shared_;
};

/// The place of a lane's pixel; all blocks go through all tiles of 32 pixels in steps of the grid.
struct PixelPlace {
  int64_t set;
  bool there;
  int64_t base;    ///< of its first channel
  int64_t stride;  ///< from channel to channel

  NORMA_DEVICE PixelPlace(const NormShape& shape, int64_t tile) {
    set = tile * kWarp + lane();
    there = set < shape.sets();
    set = there ? set : shape.sets() - 1;
    const int64_t outer = set / shape.kept;
    base = outer * shape.reduce_outer * shape.kept + (set - outer * shape.kept);
    stride = shape.kept;
  }
};

template <class S, int held>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(512) normalise_pixels(NormProblem problem, ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  const PixelTeam team(shared_memory<double>());
  const auto channels = static_cast<int>(problem.shape.reduce_outer);
  const int first = team.rank() * held;
  const auto count = static_cast<double>(channels);
  const bool raw = problem.raw_sums();
  const int64_t tiles = ceil_div(problem.shape.sets(), kWarp);
  for (int64_t tile = block(); tile < tiles; tile += blocks()) {
    const PixelPlace place(problem.shape, tile);
    T x[held];
    NORMA_UNROLL
    for (int i = 0; i < held; ++i) {
      x[i] = first + i < channels ? to_number(arrays.x[place.base + (first + i) * place.stride]) : T(0);
    }
    /// The sums of d and d² with d = (x - a) - b.
    const auto sums_about = [&](T a, T b, double& sum, double& squares) {
      T of_d = 0;
      T of_squares = 0;
      NORMA_UNROLL
      for (int i = 0; i < held; ++i) {
        const T d = first + i < channels ? (x[i] - a) - b : T(0);
        of_d += d;
        of_squares = fused_multiply_add(d, d, of_squares);
      }
      sum = static_cast<double>(of_d);
      squares = static_cast<double>(of_squares);
      team.sum(sum, squares);
    };
    SetStatistics<T> of_pixel{};
    if (problem.fixed_stats) {
      of_pixel.mean = arrays.mean[place.set];
      of_pixel.mean_low = arrays.mean_low[place.set];
      of_pixel.rstd = arrays.rstd[place.set];
    } else {
      const T pivot = raw ? T(0) : to_number(arrays.x[place.base]);
      double sum;
      double squares;
      sums_about(pivot, T(0), sum, squares);
      Moments moments{0, sum, squares};
      if (!raw) {
        const double offset = sum / count;
        const T mean = static_cast<T>(static_cast<double>(pivot) + offset);
        const T mean_low = static_cast<T>((static_cast<double>(pivot) - static_cast<double>(mean)) + offset);
        sums_about(mean, mean_low, sum, squares);
        moments = moments_of(/* raw= */ false, count, 0, sum, squares);
        moments.pivot = static_cast<double>(mean);
        moments.offset += static_cast<double>(mean_low);
      }
      of_pixel = statistics_of<T>(problem, moments);
      if (team.any(of_pixel.lost)) {
        const auto scaled = scaled_statistics(problem, arrays.x, place.set, team, of_pixel);
        of_pixel = of_pixel.lost ? scaled : of_pixel;
      }
      if (place.there && team.rank() == 0) {
        store_set(problem, arrays, place.set, of_pixel);
      }
      if (problem.centring == Centring::deviation) {
        of_pixel.mean = T(0);
        of_pixel.mean_low = T(0);
      }
    }
    if (arrays.y == nullptr || !place.there) {
      continue;  // all threads are past the last barrier of this tile
    }
    NORMA_UNROLL
    for (int i = 0; i < held; ++i) {
      const int channel = first + i;
      if (channel < channels) {
        const int64_t at = place.base + channel * place.stride;
        const Normaliser<T> normalise{of_pixel.mean, of_pixel.mean_low,
                                      arrays.weight == nullptr ? of_pixel.rstd : of_pixel.rstd * arrays.weight[channel],
                                      arrays.bias == nullptr ? T(0) : arrays.bias[channel]};
        T z = normalise(x[i]);
        if (arrays.residual != nullptr) {
          z += to_number(arrays.residual[at]);
        }
        arrays.y[at] = to_element<S>(activated(arrays.activation, z));
      }
    }
  }
}

/// Writes dx and dresidual, and each block's part of the weight gradients: a row for the weights and one for the
/// biases. partials: null where they are not wanted.
template <class S, int held>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(512)
    pixel_gradients(NormProblem problem, InputGradients gradients, BackwardArrays<S> arrays, compute_t<S>* partials) {
  using T = compute_t<S>;
  const PixelTeam team(shared_memory<double>());
  const auto channels = static_cast<int>(problem.shape.reduce_outer);
  const int first = team.rank() * held;
  T dweight[held] = {};
  T dbias[held] = {};
  const int64_t tiles = ceil_div(problem.shape.sets(), kWarp);
  for (int64_t tile = block(); tile < tiles; tile += blocks()) {
    const PixelPlace place(problem.shape, tile);
    const T mean = arrays.mean[place.set];
    const T mean_low = arrays.mean_low[place.set];
    const T rstd = arrays.rstd[place.set];
    T x[held];
    T dz[held];
    T sum = 0;
    T sum_xhat = 0;
    NORMA_UNROLL
    for (int i = 0; i < held; ++i) {
      const int channel = first + i;
      x[i] = T(0);
      dz[i] = T(0);
      if (place.there && channel < channels) {
        const int64_t at = place.base + channel * place.stride;
        const T weight = arrays.weight == nullptr ? T(1) : arrays.weight[channel];
        x[i] = to_number(arrays.x[at]);
        dz[i] = dz_of(arrays, at, place.set, channel);
        const T g = dz[i] * weight;
        const T xhat = ((x[i] - mean) - mean_low) * rstd;
        sum += g;
        sum_xhat = fused_multiply_add(g, xhat, sum_xhat);
        dweight[i] = fused_multiply_add(dz[i], xhat, dweight[i]);
        dbias[i] += dz[i];
        if (arrays.dresidual != nullptr) {
          arrays.dresidual[at] = to_element<S>(dz[i]);
        }
      }
    }
    if (arrays.dx == nullptr) {
      continue;
    }
    InputGradient<T> gradient{};
    if (!problem.fixed_stats) {
      double total = static_cast<double>(sum);
      double total_xhat = static_cast<double>(sum_xhat);
      team.sum(total, total_xhat);
      gradient = gradients.of<T>(static_cast<double>(rstd), total, total_xhat);
    }
    const T centre = arrays.centre == nullptr ? mean : arrays.centre[place.set];
    const T centre_low = arrays.centre == nullptr ? mean_low : arrays.centre_low[place.set];
    NORMA_UNROLL
    for (int i = 0; i < held; ++i) {
      const int channel = first + i;
      if (place.there && channel < channels) {
        const T by_dz = arrays.weight == nullptr ? rstd : rstd * arrays.weight[channel];
        const T xhat = ((x[i] - centre) - centre_low) * rstd;
        const T dx = dx_of(problem.fixed_stats, dz[i], by_dz, xhat, gradient);
        arrays.dx[place.base + channel * place.stride] = to_element<S>(dx);
      }
    }
  }
  if (partials == nullptr) {
    return;
  }
  // The lanes of a warp hold the same channels.
  const LaneTeam lanes;
  NORMA_UNROLL
  for (int i = 0; i < held; ++i) {
    double of_weight = static_cast<double>(dweight[i]);
    double of_bias = static_cast<double>(dbias[i]);
    lanes.sum(of_weight, of_bias);
    if (lane() == 0 && first + i < channels) {
      partials[2 * block() * channels + first + i] = static_cast<T>(of_weight);
      partials[(2 * block() + 1) * channels + first + i] = static_cast<T>(of_bias);
    }
  }
}

/// True iff these kernels cover the case.
inline bool are_pixels(const NormProblem& problem) {
  const AffineShape& affine = problem.affine;
  const bool by_channel = affine.kept == 1 && affine.inner == 1 && affine.outer_period == 1;
  return !problem.shape.set_is_one_run() && problem.shape.reduce_inner == 1 &&
         (!affine.present || (by_channel && affine.reduce_outer == problem.shape.reduce_outer));
}

bool pixels_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    const PixelPlan plan = plan_pixels(problem.shape.reduce_outer, 32);
    if (!are_pixels(problem) || plan.held == 0 || arrays.bits != nullptr) {
      return false;
    }
    dispatch_held<32>(plan.held, [&](auto held) {
      constexpr int64_t kTimes = 4;  // as many blocks as run together: the last ones end at about the same time
      const int threads = plan.warps * kWarp;
      const size_t shared_bytes = PixelTeam::bytes(plan.warps);
      const int64_t resident = resident_blocks(normalise_pixels<S, held>, threads, shared_bytes);
      launch(std::min(ceil_div(problem.shape.sets(), kWarp), kTimes * resident), threads, shared_bytes,
             current_stream(), normalise_pixels<S, held>, problem, ForwardArrays<S>(problem, arrays));
    });
    return true;
  });
}

bool pixels_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const PixelPlan plan = plan_pixels(problem.shape.reduce_outer, 16);
    if (!are_pixels(problem) || plan.held == 0) {
      return false;
    }
    const BackwardArrays<S> typed(problem, arrays);
    const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
    const int64_t channels = problem.shape.reduce_outer;
    dispatch_held<16>(plan.held, [&](auto held) {
      const int threads = plan.warps * kWarp;
      const size_t shared_bytes = PixelTeam::bytes(plan.warps);
      // Each block leaves a part of the weights' gradients, so there are no more than run at the same time.
      const int64_t resident = resident_blocks(pixel_gradients<S, held>, threads, shared_bytes);
      const int64_t blocks = std::min(ceil_div(problem.shape.sets(), kWarp), resident);
      const DeviceBuffer<T> partials(weights_wanted ? 2 * blocks * channels : 0);
      launch(blocks, threads, shared_bytes, current_stream(), pixel_gradients<S, held>, problem,
             InputGradients(problem), typed, partials.data());
      if (weights_wanted) {
        launch_add_partials(channels, blocks, partials.data(), typed.dweight, typed.dbias);
      }
    });
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
