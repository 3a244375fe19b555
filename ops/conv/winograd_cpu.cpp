#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/winograd_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/simd/call.h"
#include "core/simd/memory.h"
#include "ops/conv/winograd.h"

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::winograd::HWY_NAMESPACE {

namespace {

using namespace simd::HWY_NAMESPACE;

using R = Register<float>;
constexpr int64_t kWidth = kRegisterLanes<float>;

// A transform of m outputs and 3 weights along one axis evaluates polynomials at m + 1 points p and at infinity:
//   input   d: row p is the polynomial of the other points, prod (x - q);
//   weights g: (1, p, p²) g / prod (p - q), and the last weight at infinity;
//   output  y[i] = sum over p of p^i times the product, plus that of infinity in the last.
// The weight gradient is the same with m "weights" (dy) and 3 outputs.

/// m = 4, at 0, ±a, ±b with a² = 1/2, b² = 2. These points round least of those that were tried: 2.1 times the error of
/// the sum itself (64 channels), where 0, ±1, ±2 have 4.7 times.
struct Four {
  static constexpr int kOutputs = 4;
  static constexpr float kA = 0.70710678118654752440F;
  static constexpr float kB = 1.41421356237309504880F;

  static HWY_INLINE void input(const R (&d)[6], R (&out)[6]) {
    out[0] = multiply_add(d[2], broadcast<float, 1>(-2.5F), d[4] + d[0]);
    out[5] = multiply_add(d[3], broadcast<float, 1>(-2.5F), d[5] + d[1]);
    pair(kA, multiply_add(d[2], broadcast<float, 1>(-2.0F), d[4]), multiply_add(d[1], broadcast<float, 1>(-2.0F), d[3]),
         out[1], out[2]);
    pair(kB, multiply_add(d[2], broadcast<float, 1>(-0.5F), d[4]), multiply_add(d[1], broadcast<float, 1>(-0.5F), d[3]),
         out[3], out[4]);
  }
  static HWY_INLINE void output(const R (&m)[6], R (&y)[4]) {
    const R sum_a = m[1] + m[2];
    const R sum_b = m[3] + m[4];
    const R difference_a = m[1] - m[2];
    const R difference_b = m[3] - m[4];
    y[0] = m[0] + (sum_a + sum_b);
    y[1] = multiply_add(difference_a, broadcast<float, 1>(kA), difference_b * kB);
    y[2] = multiply_add(sum_a, broadcast<float, 1>(0.5F), sum_b * 2.0F);
    y[3] = multiply_add(difference_a, broadcast<float, 1>(0.5F * kA),
                        multiply_add(difference_b, broadcast<float, 1>(2 * kB), m[5]));
  }
  static HWY_INLINE void weight(const R (&g)[3], R (&out)[6]) {
    out[0] = g[0];
    out[5] = g[2];
    pair(kA * (-2.0F / 3), multiply_add(g[2], broadcast<float, 1>(0.5F), g[0]) * (-2.0F / 3), g[1], out[1], out[2]);
    pair(kB / 6, multiply_add(g[2], broadcast<float, 1>(2.0F), g[0]) * (1.0F / 6), g[1], out[3], out[4]);
  }
  static HWY_INLINE void output_gradient(const R (&g)[4], R (&out)[6]) {
    out[0] = g[0];
    out[5] = g[3];
    pair(kA * (-2.0F / 3), multiply_add(g[2], broadcast<float, 1>(0.5F), g[0]) * (-2.0F / 3),
         multiply_add(g[3], broadcast<float, 1>(0.5F), g[1]), out[1], out[2]);
    pair(kB / 6, multiply_add(g[2], broadcast<float, 1>(2.0F), g[0]) * (1.0F / 6),
         multiply_add(g[3], broadcast<float, 1>(2.0F), g[1]), out[3], out[4]);
  }
  static HWY_INLINE void weight_gradient(const R (&m)[6], R (&y)[3]) {
    const R sum_a = m[1] + m[2];
    const R sum_b = m[3] + m[4];
    y[0] = m[0] + (sum_a + sum_b);
    y[1] = multiply_add(m[1] - m[2], broadcast<float, 1>(kA), (m[3] - m[4]) * kB);
    y[2] = multiply_add(sum_a, broadcast<float, 1>(0.5F), multiply_add(sum_b, broadcast<float, 1>(2.0F), m[5]));
  }

 private:
  /// even + p odd and even - p odd: the values at p and at -p.
  static HWY_INLINE void pair(float p, const R& even, const R& odd, R& at, R& opposite) {
    at = multiply_add(odd, broadcast<float, 1>(p), even);
    opposite = multiply_add(odd, broadcast<float, 1>(-p), even);
  }
};

/// m = 2, at 0, ±1.
struct Two {
  static constexpr int kOutputs = 2;

  static HWY_INLINE void input(const R (&d)[4], R (&out)[4]) {
    out[0] = d[0] - d[2];
    out[1] = d[1] + d[2];
    out[2] = d[2] - d[1];
    out[3] = d[3] - d[1];
  }
  static HWY_INLINE void output(const R (&m)[4], R (&y)[2]) {
    y[0] = m[0] + (m[1] + m[2]);
    y[1] = (m[1] - m[2]) + m[3];
  }
  static HWY_INLINE void weight(const R (&g)[3], R (&out)[4]) {
    const R even = (g[0] + g[2]) * 0.5F;
    const R odd = g[1] * 0.5F;
    out[0] = g[0];
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = g[2];
  }
  static HWY_INLINE void output_gradient(const R (&g)[2], R (&out)[4]) {
    out[0] = g[0];
    out[1] = (g[0] + g[1]) * 0.5F;
    out[2] = (g[0] - g[1]) * 0.5F;
    out[3] = g[1];
  }
  static HWY_INLINE void weight_gradient(const R (&m)[4], R (&y)[3]) {
    const R sum = m[1] + m[2];
    y[0] = m[0] + sum;
    y[1] = m[1] - m[2];
    y[2] = sum + m[3];
  }
};

/// to = transform(from transform), along both axes: along columns first, then along rows.
template <int kFrom, int kTo, class Transform>
HWY_INLINE void along_both(const R (&from)[kFrom][kFrom], R (&to)[kTo][kTo], Transform transform) {
  R half[kTo][kFrom];  // transposed: by column
  unroll<kFrom>([&](auto i) HWY_ATTR {
    R row[kTo];
    transform(from[i], row);
    unroll<kTo>([&](auto j) HWY_ATTR { half[j][i] = row[j]; });
  });
  unroll<kTo>([&](auto j) HWY_ATTR {
    R column[kTo];
    transform(half[j], column);
    unroll<kTo>([&](auto i) HWY_ATTR { to[i][j] = column[i]; });
  });
}

/// Calls f(tile's place in [0, end - begin), image, first row, first column) for each tile.
template <class F>
HWY_INLINE void for_each_tile(const Tiles& tiles, int64_t begin, int64_t end, F&& f) {
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t row = tile / tiles.columns;
    f(tile - begin, row / tiles.rows, row % tiles.rows * tiles.step - tiles.padding_h,
      tile % tiles.columns * tiles.step - tiles.padding_w);
  }
}

/// Calls f(first channel) for registers of channels that cover [0, c). The last may overlap the one before.
template <class F>
HWY_INLINE void for_each_register(int64_t c, F&& f) {
  for (int64_t channel = 0; channel < c; channel += kWidth) {
    f(std::min(channel, c - kWidth));
  }
}

/// Transforms the kSize² numbers of each tile.
template <int kSize, int kTo, class Transform>
HWY_INLINE void gather_tiles(const Tiles& t, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix,
                             Transform transform) {
  for_each_tile(t, begin, end, [&](int64_t place, int64_t image, int64_t h, int64_t w) HWY_ATTR {
    const bool inside = h >= 0 && w >= 0 && h + kSize <= t.h && w + kSize <= t.w;
    const float* const corner = data + ((image * t.h + h) * t.w + w) * t.c;
    for_each_register(t.c, [&](int64_t channel) HWY_ATTR {
      R from[kSize][kSize];
      if (inside) {
        unroll<kSize>([&](auto i) HWY_ATTR {
          unroll<kSize>([&](auto j)
                            HWY_ATTR { from[i][j] = load(corner + (i * t.w + j) * t.c + channel, OneRegister{}); });
        });
      } else {
        unroll<kSize>([&](auto i) HWY_ATTR {
          unroll<kSize>([&](auto j) HWY_ATTR {
            const bool read = h + i >= 0 && h + i < t.h && w + j >= 0 && w + j < t.w;
            from[i][j] = read ? load(corner + (i * t.w + j) * t.c + channel, OneRegister{}) : R{};
          });
        });
      }
      R to[kTo][kTo];
      along_both<kSize, kTo>(from, to, transform);
      float* const first = out + place * t.c + channel;
      unroll<kTo>([&](auto i) HWY_ATTR {
        unroll<kTo>([&](auto j) HWY_ATTR { store(first + (i * kTo + j) * matrix, to[i][j], OneRegister{}); });
      });
    });
  });
}

template <class M>
void input_of(const Tiles& t, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix) {
  constexpr int kSize = M::kOutputs + 2;
  gather_tiles<kSize, kSize>(t, data, begin, end, out, matrix,
                             [](const R(&from)[kSize], R(&to)[kSize]) HWY_ATTR { M::input(from, to); });
}

template <class M>
void output_gradient_of(const Tiles& t, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix) {
  constexpr int kSize = M::kOutputs;
  gather_tiles<kSize, kSize + 2>(t, data, begin, end, out, matrix,
                                 [](const R(&from)[kSize], R(&to)[kSize + 2])
                                     HWY_ATTR { M::output_gradient(from, to); });
}

template <class M>
void output_of(const Tiles& t, const float* sums, int64_t matrix, int64_t begin, int64_t end, const Store& then,
               float* data) {
  constexpr int kSize = M::kOutputs + 2;
  constexpr int kOutputs = M::kOutputs;
  for_each_tile(t, begin, end, [&](int64_t place, int64_t image, int64_t h, int64_t w) HWY_ATTR {
    const int64_t corner = ((image * t.h + h) * t.w + w) * t.c;
    for_each_register(t.c, [&](int64_t channel) HWY_ATTR {
      const float* const first = sums + place * t.c + channel;
      R half[kOutputs][kSize];
      unroll<kSize>([&](auto j) HWY_ATTR {
        R column[kSize];
        unroll<kSize>([&](auto i) HWY_ATTR { column[i] = load(first + (i * kSize + j) * matrix, OneRegister{}); });
        R out[kOutputs];
        M::output(column, out);
        unroll<kOutputs>([&](auto i) HWY_ATTR { half[i][j] = out[i]; });
      });
      const R bias = then.bias == nullptr ? R{} : load(then.bias + channel, OneRegister{});
      unroll<kOutputs>([&](auto i) HWY_ATTR {
        if (h + i < t.h) {
          R out[kOutputs];
          M::output(half[i], out);
          unroll<kOutputs>([&](auto j) HWY_ATTR {
            if (w + j < t.w) {
              const int64_t at = corner + (i * t.w + j) * t.c + channel;
              R y = then.bias == nullptr ? out[j] : out[j] + bias;
              if (then.residual != nullptr) {
                y = y + load(then.residual + at, OneRegister{});
              }
              store(data + at, then.relu ? select(y <= R{}, R{}, y) : y, OneRegister{});
            }
          });
        }
      });
    });
  });
}

/// Numbers that lie `stride` apart.
HWY_INLINE R load_strided(const float* data, int64_t stride) {
  if (stride == 1) {
    return load(data, OneRegister{});
  }
  HWY_ALIGN float lanes[kWidth];
  for (int64_t lane = 0; lane < kWidth; ++lane) {
    lanes[lane] = data[lane * stride];
  }
  return load(static_cast<const float*>(lanes), OneRegister{});
}

/// Turns four registers of 4x4 matrices, one in each four lanes, into their transposes.
HWY_INLINE void transpose_fours(R (&rows)[4]) {
  const Tag<float> tag;
  const hn::Repartition<double, Tag<float>> pairs;
  const auto cast = [&](auto v) HWY_ATTR { return hn::BitCast(pairs, v); };
  const auto low01 = hn::InterleaveLower(tag, rows[0].only, rows[1].only);
  const auto low23 = hn::InterleaveLower(tag, rows[2].only, rows[3].only);
  const auto high01 = hn::InterleaveUpper(tag, rows[0].only, rows[1].only);
  const auto high23 = hn::InterleaveUpper(tag, rows[2].only, rows[3].only);
  rows[0] = {hn::BitCast(tag, hn::InterleaveLower(pairs, cast(low01), cast(low23)))};
  rows[1] = {hn::BitCast(tag, hn::InterleaveUpper(pairs, cast(low01), cast(low23)))};
  rows[2] = {hn::BitCast(tag, hn::InterleaveLower(pairs, cast(high01), cast(high23)))};
  rows[3] = {hn::BitCast(tag, hn::InterleaveUpper(pairs, cast(high01), cast(high23)))};
}

/// Rows of a matrix that are read together: a line of the cache.
constexpr int64_t kRows = 16;

/// to[row] = data[row + lane * stride]: the transpose of a matrix whose rows lie `stride` apart.
HWY_INLINE void load_transposed(const float* data, int64_t stride, R (&to)[kRows]) {
  HWY_ALIGN float lanes[kRows][kWidth];
  for (int64_t lane = 0; lane < kWidth; ++lane) {
    for (int64_t four = 0; four < kRows; four += 4) {
      std::memcpy(&lanes[four + lane % 4][lane / 4 * 4], data + lane * stride + four, 4 * sizeof(float));
    }
  }
  for (int64_t four = 0; four < kRows; four += 4) {
    R rows[4];
    unroll<4>([&](auto i) HWY_ATTR { rows[i] = load(static_cast<const float*>(lanes[four + i]), OneRegister{}); });
    transpose_fours(rows);
    unroll<4>([&](auto i) HWY_ATTR { to[four + i] = rows[i]; });
  }
}

HWY_INLINE void store_strided(float* data, int64_t stride, const R& value) {
  if (stride == 1) {
    store(data, value, OneRegister{});
    return;
  }
  HWY_ALIGN float lanes[kWidth];
  store(static_cast<float*>(lanes), value, OneRegister{});
  for (int64_t lane = 0; lane < kWidth; ++lane) {
    data[lane * stride] = lanes[lane];
  }
}

/// Calls f(k, n) for rows k of [begin, end) and registers n of a row: in blocks of rows, since the neighbours of a
/// number in memory may be those of the next rows.
template <class F>
HWY_INLINE void for_each_weight(const Weights& g, int64_t begin, int64_t end, F&& f) {
  for (int64_t row = begin; row < end; row += kRows) {
    for_each_register(g.n, [&](int64_t n) HWY_ATTR {
      for (int64_t k = row; k < std::min(end, row + kRows); ++k) {
        f(k, n);
      }
    });
  }
}

/// out[p, k, n] from nine weights.
template <class M>
HWY_INLINE void transform_weight(const Weights& g, const R (&from)[3][3], int64_t k, int64_t n, float* out) {
  constexpr int kSize = M::kOutputs + 2;
  R to[kSize][kSize];
  along_both<3, kSize>(from, to, [](const R(&three)[3], R(&all)[kSize]) HWY_ATTR { M::weight(three, all); });
  float* const first = out + k * g.n + n;
  unroll<kSize>([&](auto i) HWY_ATTR {
    unroll<kSize>([&](auto j) HWY_ATTR { store(first + (i * kSize + j) * g.k * g.n, to[i][j], OneRegister{}); });
  });
}

template <class M>
void weight_of(const Weights& g, const float* data, int64_t begin, int64_t end, float* out) {
  const auto at = [&](int64_t k, int64_t n, int64_t i, int64_t j) HWY_ATTR {
    return data + k * g.k_stride + n * g.n_stride + (g.flip ? 2 - i : i) * g.h_stride +
           (g.flip ? 2 - j : j) * g.w_stride;
  };
  int64_t whole = begin;
  if (g.k_stride == 1 && g.n_stride != 1) {
    for (; whole + kRows <= end; whole += kRows) {
      for_each_register(g.n, [&](int64_t n) HWY_ATTR {
        R rows[3][3][kRows];
        unroll<3>([&](auto i) HWY_ATTR {
          unroll<3>([&](auto j) HWY_ATTR { load_transposed(at(whole, n, i, j), g.n_stride, rows[i][j]); });
        });
        for (int64_t row = 0; row < kRows; ++row) {
          R from[3][3];
          unroll<3>([&](auto i) HWY_ATTR { unroll<3>([&](auto j) HWY_ATTR { from[i][j] = rows[i][j][row]; }); });
          transform_weight<M>(g, from, whole + row, n, out);
        }
      });
    }
  }
  for_each_weight(g, whole, end, [&](int64_t k, int64_t n) HWY_ATTR {
    R from[3][3];
    unroll<3>([&](auto i) HWY_ATTR {
      unroll<3>([&](auto j) HWY_ATTR { from[i][j] = load_strided(at(k, n, i, j), g.n_stride); });
    });
    transform_weight<M>(g, from, k, n, out);
  });
}

template <class M>
void weight_gradient_of(const Weights& g, const float* sums, int64_t parts, int64_t begin, int64_t end, float* data) {
  constexpr int kSize = M::kOutputs + 2;
  const int64_t matrix = g.k * g.n;
  for_each_weight(g, begin, end, [&](int64_t k, int64_t n) HWY_ATTR {
    R from[kSize][kSize];
    unroll<kSize>([&](auto i) HWY_ATTR {
      unroll<kSize>([&](auto j) HWY_ATTR {
        const float* const first = sums + (i * kSize + j) * matrix + k * g.n + n;
        R sum = load(first, OneRegister{});
        for (int64_t part = 1; part < parts; ++part) {
          sum = sum + load(first + part * kSize * kSize * matrix, OneRegister{});
        }
        from[i][j] = sum;
      });
    });
    R to[3][3];
    along_both<kSize, 3>(from, to, [](const R(&all)[kSize], R(&three)[3]) HWY_ATTR { M::weight_gradient(all, three); });
    unroll<3>([&](auto i) HWY_ATTR {
      unroll<3>([&](auto j) HWY_ATTR {
        store_strided(data + k * g.k_stride + n * g.n_stride + i * g.h_stride + j * g.w_stride, g.n_stride, to[i][j]);
      });
    });
  });
}

}  // namespace

void input(const Tiles& x, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix) {
  (x.step == 4 ? input_of<Four> : input_of<Two>)(x, data, begin, end, out, matrix);
}
void output(const Tiles& y, const float* sums, int64_t matrix, int64_t begin, int64_t end, const Store& then,
            float* data) {
  (y.step == 4 ? output_of<Four> : output_of<Two>)(y, sums, matrix, begin, end, then, data);
}
void weight(const Weights& weights, int64_t step, const float* data, int64_t begin, int64_t end, float* out) {
  (step == 4 ? weight_of<Four> : weight_of<Two>)(weights, data, begin, end, out);
}
void output_gradient(const Tiles& dy, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix) {
  (dy.step == 4 ? output_gradient_of<Four> : output_gradient_of<Two>)(dy, data, begin, end, out, matrix);
}
void weight_gradient(const Weights& weights, int64_t step, const float* sums, int64_t parts, int64_t begin, int64_t end,
                     float* data) {
  (step == 4 ? weight_gradient_of<Four> : weight_gradient_of<Two>)(weights, sums, parts, begin, end, data);
}

}  // namespace norma::kernels::winograd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::winograd {

constinit const Kernels kernels_cpu{.input = NORMA_SIMD_CALL(input),
                                    .output = NORMA_SIMD_CALL(output),
                                    .weight = NORMA_SIMD_CALL(weight),
                                    .output_gradient = NORMA_SIMD_CALL(output_gradient),
                                    .weight_gradient = NORMA_SIMD_CALL(weight_gradient)};

}  // namespace norma::kernels::winograd
#endif
