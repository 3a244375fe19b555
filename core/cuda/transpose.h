#pragma once

#include "core/cuda/flat_loop.h"

#include <algorithm>

// Copies between layouts whose innermost axes differ, such as NCHW and NHWC. A square tile goes through shared memory,
// so that neighbouring threads read neighbours and write neighbours.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kTransposeThreads = 256;
inline constexpr int kSide = 64;
/// Tiles pay where both axes have this many elements.
inline constexpr int64_t kLeastSide = 16;

/// A loop of two operands: 0 is innermost along the axis of columns, 1 along that of rows.
struct TransposedLoop {
  FlatLoop<2> planes;  ///< the other axes
  int64_t rows;
  int64_t columns;
  int64_t row_stride;     ///< of operand 0
  int64_t column_stride;  ///< of operand 1
};

/// Elements from a row of a tile to the next: columns of a tile then begin in banks of their own.
template <class Word>
inline constexpr int kTilePitch = kSide + (sizeof(Word) < 4 ? 4 / static_cast<int>(sizeof(Word)) : 1);

/// to = from, as words that may stand for elements of any dtype of their size.
template <class Word>
NORMA_KERNEL NORMA_LAUNCH_BOUNDS(kTransposeThreads) void move_transposed(TransposedLoop loop, Word* to,
                                                                         const Word* from) {
  constexpr int kPitch = kTilePitch<Word>;
  constexpr int kStep = kTransposeThreads / kSide;
  Word* tile = shared_memory<Word>();  // (columns, rows)
  const int64_t tiles_down = ceil_div(loop.rows, kSide);
  const int64_t tiles_across = ceil_div(loop.columns, kSide);
  const int64_t tiles = loop.planes.count * tiles_down * tiles_across;
  const int along = thread() % kSide;
  const int first = thread() / kSide;
  for (int64_t i = block(); i < tiles; i += blocks()) {
    const int64_t line = quotient(i, tiles_across);
    const int64_t column = (i - line * tiles_across) * kSide;
    const int64_t plane = quotient(line, tiles_down);
    const int64_t row = (line - plane * tiles_down) * kSide;
    int64_t at[2];
    loop.planes.offsets(plane, at);
    const int64_t rows = loop.rows - row;
    const int64_t columns = loop.columns - column;
    const Word* source = from + at[1] + row + column * loop.column_stride;
    NORMA_UNROLL
    for (int j = 0; j < kSide; j += kStep) {
      if (along < rows && first + j < columns) {
        tile[(first + j) * kPitch + along] = source[along + (first + j) * loop.column_stride];
      }
    }
    sync_threads();
    Word* target = to + at[0] + row * loop.row_stride + column;
    NORMA_UNROLL
    for (int j = 0; j < kSide; j += kStep) {
      if (along < columns && first + j < rows) {
        target[along + (first + j) * loop.row_stride] = tile[along * kPitch + first + j];
      }
    }
    sync_threads();
  }
}

/// Copies operand 1 of the loop, which is innermost along the axis `across`, to operand 0.
template <class Word>
void transpose(const StridedLoop<2>& loop, int64_t across, void* to, const void* from) {
  const int64_t last = loop.sizes.size() - 1;
  StridedLoop<2> planes;
  for (int64_t axis = 0; axis < last; ++axis) {
    if (axis != across) {
      planes.sizes.push_back(loop.sizes[axis]);
      planes.strides[0].push_back(loop.strides[0][axis]);
      planes.strides[1].push_back(loop.strides[1][axis]);
    }
  }
  const TransposedLoop transposed{.planes = FlatLoop<2>(planes),
                                  .rows = loop.sizes[across],
                                  .columns = loop.sizes[last],
                                  .row_stride = loop.strides[0][across],
                                  .column_stride = loop.strides[1][last]};
  const int64_t tiles = planes.numel() * ceil_div(transposed.rows, kSide) * ceil_div(transposed.columns, kSide);
  const size_t shared_bytes = static_cast<size_t>(kSide) * kTilePitch<Word> * sizeof(Word);
  launch(std::min(tiles, resident_blocks(move_transposed<Word>, kTransposeThreads, shared_bytes)), kTransposeThreads,
         shared_bytes, current_stream(), move_transposed<Word>, transposed, static_cast<Word*>(to),
         static_cast<const Word*>(from));
}

}  // namespace norma::kernels::NORMA_BACKEND
