#include "core/cuda/teams.h"
#include "ops/conv/cuda/depthwise.h"

// Depthwise convolutions of contiguous images. Lanes run along the columns of a plane. A block keeps the inputs of its
// tile, from one plane or from several small ones, in shared memory.

namespace norma::kernels::NORMA_BACKEND {

/// The cut of planes into tiles, and the number of planes that a block takes. Sizes are those of the results.
struct PlaneTiles {
  int columns;       ///< of a tile, a thread each
  int strips;        ///< of rows of a tile
  int planes;        ///< of a block
  int across, down;  ///< tiles of a plane
  int in_h, in_w;    ///< inputs of a tile
  int team;          ///< lanes that load a row of it, a power of two

  [[nodiscard]] constexpr int64_t of_plane() const { return static_cast<int64_t>(across) * down; }
  [[nodiscard]] constexpr int in_size() const { return in_h * in_w; }
};

/// The weights of a plane in shared memory: (columns of taps, rows of taps). Taps that no result has are 0.
template <class Taps>
struct TapColumns {
  static constexpr int kPitch = Taps::kSize <= 4 ? 4 : 8;
  static constexpr int kCount = Taps::kSize + 1;
  static constexpr int kElements = kCount * kPitch;
};

/// The tiles for blocks of up to `most_planes`, each with `more_elements` T beside its inputs.
template <class T, class Taps>
PlaneTiles tiles_of_planes(const DepthwiseImages& of, int64_t most_planes, int more_elements) {
  constexpr int kMostColumns = 64;
  constexpr int64_t kMostBytes = 40 << 10;
  PlaneTiles tiles{};
  tiles.across = static_cast<int>(ceil_div(of.out_w, kMostColumns));
  tiles.columns = static_cast<int>(ceil_div(of.out_w, tiles.across));
  tiles.in_w = Taps::kGradient ? static_cast<int>(ceil_div(tiles.columns - 1, Taps::kStride)) + Taps::kOfResult
                               : (tiles.columns - 1) * Taps::kStride + Taps::kSize;
  const int all = Taps::strips(of.out_h, of.padding_h);
  const auto rows = [](int strips) { return (strips - 1) * Taps::kStep + Taps::kInputs; };
  const auto bytes = [&](int strips) {
    return static_cast<int64_t>(rows(strips) * tiles.in_w + more_elements) * static_cast<int64_t>(sizeof(T));
  };
  int strips = std::clamp(kDepthwiseThreads / tiles.columns, 1, all);
  while (strips > 1 && bytes(strips) > kMostBytes) {
    --strips;
  }
  tiles.down = static_cast<int>(ceil_div(all, strips));
  tiles.strips = static_cast<int>(ceil_div(all, tiles.down));
  tiles.in_h = rows(tiles.strips);
  const int64_t that_fit =
      std::min(kMostBytes / bytes(tiles.strips), int64_t{kDepthwiseThreads / (tiles.columns * tiles.strips)});
  tiles.planes = static_cast<int>(std::clamp<int64_t>(that_fit, 1, most_planes));
  tiles.team = 1;
  while (tiles.team < kWarp && tiles.team < tiles.in_w) {
    tiles.team *= 2;
  }
  return tiles;
}

/// The place of a thread in the tiles of its block.
struct TilePlace {
  int plane, strip, column;

  NORMA_DEVICE explicit TilePlace(const PlaneTiles& tiles) {
    const int of_plane = tiles.columns * tiles.strips;
    plane = thread() / of_plane;
    const int rest = thread() - plane * of_plane;
    strip = rest / tiles.columns;
    column = rest - strip * tiles.columns;
  }
};

/// The place where a tile begins in its plane.
struct TileOrigin {
  int strip;   ///< along the rows
  int column;  ///< of the results
  int in_row, in_column;
};

/// The origin of tile number `tile` of a plane.
template <class Taps>
NORMA_DEVICE TileOrigin tile_origin(const DepthwiseImages& of, const PlaneTiles& tiles, int64_t tile) {
  TileOrigin origin{};
  const int down = static_cast<int>(tile) / tiles.across;
  origin.strip = down * tiles.strips;
  origin.column = (static_cast<int>(tile) - down * tiles.across) * tiles.columns;
  origin.in_row = Taps::input_begin(of.padding_h) + origin.strip * Taps::kStep + Taps::kFirst;
  // Inputs of dx are counted downwards.
  origin.in_column = Taps::input_of(origin.column, of.padding_w, Taps::kGradient ? Taps::kOfResult - 1 : 0);
  return origin;
}

/// Loads the inputs of a block's tiles; 0 outside of images. Plane number i of the block begins at in + i ·
/// plane_stride; there are `planes` of them.
template <class S, class T = compute_t<S>>
NORMA_DEVICE void load_tiles(const DepthwiseImages& of, const PlaneTiles& tiles, const TileOrigin& origin, const S* in,
                             int64_t plane_stride, int64_t planes, T* shared) {
  const int lane_of_team = thread() & (tiles.team - 1);
  for (int line = thread() / tiles.team; line < tiles.planes * tiles.in_h; line += threads() / tiles.team) {
    const int plane = line / tiles.in_h;
    const int row = origin.in_row + line - plane * tiles.in_h;
    const bool is_there = plane < planes && is_inside(row, of.in_h);
    const S* from = in + plane * plane_stride + static_cast<int64_t>(row) * of.in_w;
    for (int column = lane_of_team; column < tiles.in_w; column += tiles.team) {
      const int at = origin.in_column + column;
      shared[line * tiles.in_w + column] = is_there && is_inside(at, of.in_w) ? to_number(from[at]) : T(0);
    }
  }
}

template <class S, class Taps, class T = compute_t<S>>
NORMA_KERNEL void filter_planes(DepthwiseImages of, PlaneTiles tiles, const S* in, const S* weight, const S* bias,
                                S* out) {
  using Columns = TapColumns<Taps>;
  constexpr int kTaps = Taps::kSize * Taps::kSize;
  T* weights = shared_memory<T>();
  T* inputs = weights + tiles.planes * Columns::kElements;
  const TilePlace place(tiles);
  const int64_t all_planes = of.images * of.channels;
  const int64_t group = quotient(block(), tiles.of_plane());
  const int64_t first_plane = group * tiles.planes;
  const TileOrigin origin = tile_origin<Taps>(of, tiles, block() - group * tiles.of_plane());
  const int64_t in_plane = static_cast<int64_t>(of.in_h) * of.in_w;
  load_tiles(of, tiles, origin, in + first_plane * in_plane, in_plane, all_planes - first_plane, inputs);
  for (int i = thread(); i < tiles.planes * Columns::kElements; i += threads()) {
    const int plane = i / Columns::kElements;
    const int tap_column = i % Columns::kElements / Columns::kPitch;
    const int tap_row = i % Columns::kPitch;
    const int64_t image = quotient(first_plane + plane, of.channels);
    const int64_t channel = first_plane + plane - image * of.channels;
    weights[i] = tap_row < Taps::kSize && tap_column < Taps::kSize
                     ? to_number(weight[channel * kTaps + tap_row * Taps::kSize + tap_column])
                     : T(0);
  }
  sync_threads();
  const int out_column = origin.column + place.column;
  const int64_t plane = first_plane + place.plane;
  if (place.plane >= tiles.planes || plane >= all_planes || out_column >= of.out_w) {
    return;
  }
  const T start = bias == nullptr ? T(0) : to_number(bias[plane - quotient(plane, of.channels) * of.channels]);
  T sums[Taps::kStrip];
  NORMA_UNROLL
  for (int j = 0; j < Taps::kStrip; ++j) {
    sums[j] = start;
  }
  const T* strip = inputs + place.plane * tiles.in_size() + place.strip * Taps::kStep * tiles.in_w;
  for (int k = 0; k < Taps::kOfResult; ++k) {
    T taps[Columns::kPitch];
    load<T, Columns::kPitch>(
        weights + place.plane * Columns::kElements + Taps::tap_of(out_column, of.padding_w, k) * Columns::kPitch, taps);
    const T* from = strip + Taps::input_of(out_column, of.padding_w, k) - origin.in_column;
    NORMA_UNROLL
    for (int q = Taps::kFirst; q <= Taps::kLast; ++q) {
      const T value = from[(q - Taps::kFirst) * tiles.in_w];
      NORMA_UNROLL
      for (int j = 0; j < Taps::kStrip; ++j) {
        const int tap = Taps::tap(q, j);
        if (Taps::is_tap(tap)) {
          sums[j] = fused_multiply_add(value, taps[tap], sums[j]);
        }
      }
    }
  }
  S* to = out + plane * of.out_h * of.out_w + out_column;
  const int out_first = Taps::result_begin(of.padding_h) + (origin.strip + place.strip) * Taps::kStrip;
  NORMA_UNROLL
  for (int j = 0; j < Taps::kStrip; ++j) {
    if (is_inside(out_first + j, of.out_h)) {
      to[static_cast<int64_t>(out_first + j) * of.out_w] = to_element<S>(sums[j]);
    }
  }
}

/// The tiles of a channel, from `planes` images at a time, are cut into parts; a block adds up one part.
struct TileParts {
  int64_t groups;  ///< of images
  int64_t tiles;   ///< of a part
  int64_t count;   ///< of a channel

  TileParts(const DepthwiseImages& of, const PlaneTiles& by) : groups(ceil_div(of.images, by.planes)) {
    constexpr int64_t kMostTiles = 32;  // sums over more tiles would be too long for T
    const int64_t all = groups * by.of_plane();
    const int64_t wanted = ceil_div(all, std::max<int64_t>(1, kDepthwiseBlocks / of.channels));
    tiles = std::min(wanted, kMostTiles);
    count = ceil_div(all, tiles);
  }
};

/// Writes partials (part, channel, tap) of dweight. `of` are the images x and y; a block has `planes` images.
template <class S, class Taps, class T = compute_t<S>>
NORMA_KERNEL void weight_sums_of_planes(DepthwiseImages of, PlaneTiles tiles, TileParts parts, const S* x, const S* dy,
                                        T* partials) {
  constexpr int kSize = Taps::kSize;
  const int64_t part = quotient(block(), of.channels);
  const int64_t channel = block() - part * of.channels;
  T* shared = shared_memory<T>();
  const TilePlace place(tiles);
  const int64_t in_plane = static_cast<int64_t>(of.in_h) * of.in_w;
  const int64_t out_plane = static_cast<int64_t>(of.out_h) * of.out_w;
  const int64_t all = parts.groups * tiles.of_plane();
  T sums[kSize][kSize] = {};  // by column and row
  for (int64_t task = part * parts.tiles; task < all && task < (part + 1) * parts.tiles; ++task) {
    const int64_t group = quotient(task, tiles.of_plane());
    const int64_t first_image = group * tiles.planes;
    const TileOrigin origin = tile_origin<Taps>(of, tiles, task - group * tiles.of_plane());
    sync_threads();  // before the last tile is overwritten
    load_tiles(of, tiles, origin, x + (first_image * of.channels + channel) * in_plane, of.channels * in_plane,
               of.images - first_image, shared);
    sync_threads();
    const int out_column = origin.column + place.column;
    const int64_t image = first_image + place.plane;
    if (place.plane >= tiles.planes || image >= of.images || out_column >= of.out_w) {
      continue;
    }
    const S* from = dy + (image * of.channels + channel) * out_plane + out_column;
    const int out_first = (origin.strip + place.strip) * Taps::kStrip;
    T gradients[Taps::kStrip];
    NORMA_UNROLL
    for (int j = 0; j < Taps::kStrip; ++j) {
      gradients[j] =
          is_inside(out_first + j, of.out_h) ? to_number(from[static_cast<int64_t>(out_first + j) * of.out_w]) : T(0);
    }
    const T* inputs = shared + place.plane * tiles.in_size() + place.strip * Taps::kStep * tiles.in_w +
                      Taps::input_of(out_column, of.padding_w, 0) - origin.in_column;
    NORMA_UNROLL
    for (int k = 0; k < kSize; ++k) {
      NORMA_UNROLL
      for (int q = Taps::kFirst; q <= Taps::kLast; ++q) {
        const T value = inputs[(q - Taps::kFirst) * tiles.in_w + k];
        NORMA_UNROLL
        for (int j = 0; j < Taps::kStrip; ++j) {
          const int tap = Taps::tap(q, j);
          if (Taps::is_tap(tap)) {
            sums[k][tap] = fused_multiply_add(value, gradients[j], sums[k][tap]);
          }
        }
      }
    }
  }
  // The sums of one column of taps are laid out as (row of taps, thread); a warp adds up each row.
  const int warp = thread() / kWarp;
  NORMA_UNROLL
  for (int k = 0; k < kSize; ++k) {
    sync_threads();
    NORMA_UNROLL
    for (int row = 0; row < kSize; ++row) {
      shared[row * threads() + thread()] = sums[k][row];
    }
    sync_threads();
    if (warp < kSize) {
      double total = 0;
      for (int i = lane(); i < threads(); i += kWarp) {
        total += static_cast<double>(shared[warp * threads() + i]);
      }
      total = LaneTeam().sum(total);
      if (lane() == 0) {
        partials[((part * of.channels + channel) * kSize + warp) * kSize + k] = static_cast<T>(total);
      }
    }
  }
}

template <class S, class Taps>
void filter_contiguous(const DepthwiseImages& of, const S* in, const S* weight, const S* bias, S* out) {
  using T = compute_t<S>;
  const int64_t planes = of.images * of.channels;
  const PlaneTiles tiles = tiles_of_planes<T, Taps>(of, planes, TapColumns<Taps>::kElements);
  const int64_t blocks = ceil_div(planes, tiles.planes) * tiles.of_plane();
  const int elements = tiles.planes * (tiles.in_size() + TapColumns<Taps>::kElements);
  launch(blocks, kDepthwiseThreads, static_cast<size_t>(elements) * sizeof(T), current_stream(), filter_planes<S, Taps>,
         of, tiles, in, weight, bias, out);
}

template <class S, class Taps>
void weight_gradient_contiguous(const DepthwiseImages& of, const S* x, const S* dy, S* dweight) {
  using T = compute_t<S>;
  const PlaneTiles tiles = tiles_of_planes<T, Taps>(of, of.images, /* more_elements= */ 0);
  const TileParts parts(of, tiles);
  const int64_t count = of.channels * Taps::kSize * Taps::kSize;
  const DeviceBuffer<T> partials(parts.count * count);
  const int elements = std::max(tiles.planes * tiles.in_size(), Taps::kSize * kDepthwiseThreads);
  launch(parts.count * of.channels, kDepthwiseThreads, static_cast<size_t>(elements) * sizeof(T), current_stream(),
         weight_sums_of_planes<S, Taps>, of, tiles, parts, x, dy, partials.data());
  add_partials({.sizes = {parts.count, count}, .x_strides = {count, 1}, .y_strides = {0, 1}}, partials.data(), dweight);
}

void filter_contiguous(const Conv2dCase& conv, bool gradient, const void* in, const void* weight, const void* bias,
                       void* out) {
  const DepthwiseImages of(conv, gradient);
  dispatch_any_floating("conv2d", conv.dtype, [&]<class S>(S) {
    const auto run = [&]<class Taps>(Taps) {
      filter_contiguous<S, Taps>(of, static_cast<const S*>(in), static_cast<const S*>(weight),
                                 static_cast<const S*>(bias), static_cast<S*>(out));
    };
    if (gradient) {
      with_depthwise_taps<true>(conv, run);
    } else {
      with_depthwise_taps<false>(conv, run);
    }
  });
}

void weight_gradient_contiguous(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  const DepthwiseImages of(conv, /* gradient= */ false);
  dispatch_any_floating("conv2d", conv.dtype, [&]<class S>(S) {
    with_depthwise_taps<false>(conv, [&]<class Taps>(Taps) {
      weight_gradient_contiguous<S, Taps>(of, static_cast<const S*>(x), static_cast<const S*>(dy),
                                          static_cast<S*>(dweight));
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
