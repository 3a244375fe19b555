#pragma once

#include "core/cuda/dense.h"
#include "core/cuda/flat_loop.h"
#include "core/kernels.h"

#include <algorithm>

// Loops over strided operands: copies, sums, fills.

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

inline constexpr int kStridedThreads = 256;

/// A word that may stand for an element of any dtype of its size.
template <class Word>
NORMA_KERNEL void move_elements(FlatLoop<2> loop, Word* to, const Word* from) {
  for (int64_t i = global_thread(); i < loop.count; i += global_threads()) {
    int64_t at[2];
    loop.offsets(i, at);
    to[at[0]] = from[at[1]];
  }
}

template <class To, class From>
NORMA_DEVICE To converted(From element) {
  if constexpr (std::is_same_v<To, bool>) {
    return to_number(element) != compute_t<From>(0);
  } else {
    return to_element<To>(static_cast<compute_t<To>>(to_number(element)));
  }
}

/// One kernel for all dtypes of the source: the branch is the same for all threads.
template <class To>
NORMA_KERNEL void convert_elements(FlatLoop<2> loop, To* to, DType from_dtype, const void* from) {
  for (int64_t i = global_thread(); i < loop.count; i += global_threads()) {
    int64_t at[2];
    loop.offsets(i, at);
    To& result = to[at[0]];
    switch (from_dtype) {
      case DType::float32: result = converted<To>(static_cast<const float*>(from)[at[1]]); break;
      case DType::float64: result = converted<To>(static_cast<const double*>(from)[at[1]]); break;
      case DType::float16: result = converted<To>(static_cast<const float16*>(from)[at[1]]); break;
      case DType::bfloat16: result = converted<To>(static_cast<const bfloat16*>(from)[at[1]]); break;
      case DType::int64: result = converted<To>(static_cast<const int64_t*>(from)[at[1]]); break;
      case DType::int32: result = converted<To>(static_cast<const int32_t*>(from)[at[1]]); break;
      case DType::uint8: result = converted<To>(static_cast<const uint8_t*>(from)[at[1]]); break;
      case DType::boolean: result = converted<To>(static_cast<const bool*>(from)[at[1]]); break;
    }
  }
}

template <class S>
NORMA_KERNEL void add_elements(FlatLoop<3> loop, S* out, const S* a, const S* b) {
  for (int64_t i = global_thread(); i < loop.count; i += global_threads()) {
    int64_t at[3];
    loop.offsets(i, at);
    out[at[0]] = to_element<S>(to_number(a[at[1]]) + to_number(b[at[2]]));
  }
}

template <class Word>
NORMA_KERNEL void fill_elements(FlatLoop<1> loop, Word* x, Word value) {
  for (int64_t i = global_thread(); i < loop.count; i += global_threads()) {
    int64_t at[1];
    loop.offsets(i, at);
    x[at[0]] = value;
  }
}

template <class Word>
void move_words(const StridedLoop<2>& loop, void* to, const void* from) {
  launch_over(loop.numel(), kStridedThreads, move_elements<Word>, FlatLoop<2>(loop), static_cast<Word*>(to),
              static_cast<const Word*>(from));
}

struct alignas(16) Words {
  uint64_t words[2];
};

/// Moves a dense run of bytes as words of 16 bytes; false if it does not consist of them.
inline bool move_run(int64_t bytes, void* to, const void* from) {
  const auto address = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (((address | static_cast<uintptr_t>(bytes)) & 15U) != 0) {
    return false;
  }
  StridedLoop<2> loop;
  loop.sizes = {bytes / 16};
  loop.strides = {Strides{1}, Strides{1}};
  move_words<Words>(loop, to, from);
  return true;
}

template <class Word>
void move_elements_of(const StridedLoop<2>& loop, void* to, const void* from) {
  const int64_t across = transposed_axis(loop);
  if (across >= 0 && loop.sizes[across] >= kLeastSide && loop.sizes.back() >= kLeastSide) {
    transpose<Word>(loop, across, to, from);
  } else {
    move_words<Word>(loop, to, from);
  }
}

inline void copy(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  const int64_t count = loop.numel();
  if (count == 0) {
    return;
  }
  const bool dense = is_dense(loop);
  if (dst_dtype != src_dtype) {
    const bool done =
        dense && with_common_pair(dst_dtype, src_dtype, [&]<class To, class From>(To, From) {
          if constexpr (!std::is_same_v<To, From>) {
            change<kVectorOfBoth<To, From>>(Converted<To, From>({.count = count, .to = dst, .from = src}, nullptr));
          }
        });
    if (!done) {
      dispatch_all(dst_dtype, [&]<class To>(To) {
        launch_over(count, kStridedThreads, convert_elements<To>, FlatLoop<2>(loop), static_cast<To*>(dst), src_dtype,
                    src);
      });
    }
    return;
  }
  const size_t size = size_of(dst_dtype);
  if (dense && move_run(count * static_cast<int64_t>(size), dst, src)) {
    return;
  }
  dispatch_word("copy", size, [&]<class Word>(Word) { move_elements_of<Word>(loop, dst, src); });
}

inline void add(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b) {
  if (loop.numel() == 0) {
    return;
  }
  dispatch_any_floating("accumulate", dtype, [&]<class S>(S) {
    if (is_dense(loop)) {
      return change<kVectorOf<S>>(SumOfTwo<S>(loop.numel(), out, a, b));
    }
    launch_over(loop.numel(), kStridedThreads, add_elements<S>, FlatLoop<3>(loop), static_cast<S*>(out),
                static_cast<const S*>(a), static_cast<const S*>(b));
  });
}

/// The bits of an element as a number of its size.
template <class T>
auto word_of(T element) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<uint8_t>(element);
  } else {
    using Word = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    Word word;
    std::memcpy(&word, &element, sizeof(T));
    return word;
  }
}

inline void fill(const StridedLoop<1>& loop, DType dtype, void* x, double value) {
  if (loop.numel() == 0) {
    return;
  }
  dispatch_all(dtype, [&]<class T>(T) {
    T element{};
    if constexpr (std::is_same_v<T, bool>) {
      element = value != 0;
    } else {
      element = static_cast<T>(static_cast<compute_t<T>>(value));
    }
    const auto word = word_of(element);
    using Word = std::remove_const_t<decltype(word)>;
    launch_over(loop.numel(), kStridedThreads, fill_elements<Word>, FlatLoop<1>(loop), static_cast<Word*>(x), word);
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
