#pragma once

#include <cstdint>

// The transforms of Winograd's convolution with 3x3 kernels (Lavin and Gray, arXiv:1509.09308). Outputs are made in
// tiles of m x m. A tile needs (m + 2) x (m + 2) inputs, whose transform is multiplied by that of the weights, element
// by element and summed over channels: (m + 2)² matrix products for all tiles. The definition has 9 m² / (m + 2)² times
// as many multiplications: 4 times for m = 4, 2.25 times for m = 2.

namespace norma::kernels::winograd {

/// NHWC images that tiles are taken from or stored to. Tile (i, j) of an image begins at row i * step - padding_h and
/// column j * step - padding_w. Numbers outside the images are 0 where they are read, and are not stored.
struct Tiles {
  int64_t n, h, w, c;
  int64_t rows, columns;  ///< tiles of one image
  int64_t step;           ///< m, the outputs of a tile along an axis: 4 or 2
  int64_t padding_h = 0, padding_w = 0;

  [[nodiscard]] int64_t count() const { return n * rows * columns; }
};

/// Numbers of a transformed tile, and so matrix products: (m + 2)².
inline int64_t products(int64_t step) {
  return (step + 2) * (step + 2);
}

/// Strides of the weights in elements, and the sizes of the two axes of the matrices made from them.
struct Weights {
  int64_t k, n;  ///< rows (summed over) and columns of a matrix
  int64_t k_stride, n_stride, h_stride, w_stride;
  bool flip;  ///< turned by half a turn, for the input gradient

  bool operator==(const Weights&) const = default;
};

/// What Kernels::output does to each sum before it is stored.
struct Store {
  const float* bias = nullptr;      ///< c numbers or nullptr
  const float* residual = nullptr;  ///< laid out as the result, or nullptr
  bool relu = false;
};

/// All transforms read or write `products` matrices that lie `matrix` elements apart, from tile `begin` to `end`.
struct Kernels {
  /// out[p, tile - begin, c] from the (step + 2)² numbers of x at each tile.
  void (*input)(const Tiles& x, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix);
  /// y at each tile from sums[p, tile - begin, c].
  void (*output)(const Tiles& y, const float* sums, int64_t matrix, int64_t begin, int64_t end, const Store& store,
                 float* data);
  /// out[p, k, n] of rows k from `begin` to `end`, lanes along n.
  void (*weight)(const Weights& weights, int64_t step, const float* data, int64_t begin, int64_t end, float* out);
  /// out[p, tile - begin, c] from the step² numbers of dy at each tile: the filter of the weight gradient, whose
  /// outputs are the nine weights.
  void (*output_gradient)(const Tiles& dy, const float* data, int64_t begin, int64_t end, float* out, int64_t matrix);
  /// The gradient of weights from sums[part, p, k, n], added up over `parts`; rows k from `begin` to `end`.
  void (*weight_gradient)(const Weights& weights, int64_t step, const float* sums, int64_t parts, int64_t begin,
                          int64_t end, float* data);
};

extern const Kernels kernels_cpu;

}  // namespace norma::kernels::winograd
