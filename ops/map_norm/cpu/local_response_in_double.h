#pragma once

#include "core/cpu/scratch.h"
#include "core/half.h"
#include "ops/map_norm/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace norma::kernels::cpu {

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

}  // namespace norma::kernels::cpu
