#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/reduce/cpu/reduce.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/memory.h"
#include "core/simd/sums.h"
#include "core/sizes.h"
#include "ops/reduce/axes.h"
#include "ops/reduce/operations.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

// Every reduction is cut into tasks by its shape alone: a task reduces a fixed part of the reduced axes for a fixed
// part of the outputs, and the parts are merged in order. So the bits do not depend on the number of threads.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {
namespace {

using namespace simd::HWY_NAMESPACE;

/// The elements that one task should have: enough to hide its overhead, few enough to feed all threads.
constexpr int64_t kTaskElements = 32768;

Sizes without_last(const Sizes& sizes) {
  return sizes.without(sizes.size() - 1);
}

/// The number of elements taken in at a time.
template <class S>
inline constexpr int kStep = kLanes<compute_t<S>>;

/// kStep accumulators.
template <class Number, class S>
using Accumulators = Parts<hn::Vec<Tag<Number>>, kStep<S> / kRegisterLanes<Number>>;

/// The elements as numbers to accumulate.
template <class Number, class S, class Part>
HWY_INLINE Accumulators<Number, S> load_as(const S* from, Part part) {
  if constexpr (std::is_same_v<Number, compute_t<S>>) {
    return load(from, part);
  } else {
    return promote(load(from, part));
  }
}
template <class Number, class S>
HWY_INLINE Accumulators<Number, S> same(Number value) {
  return broadcast<Number, kStep<S> / kRegisterLanes<Number>>(value);
}
template <class S, class Number>
HWY_INLINE Accumulators<Number, S> load_accumulators(const Number* from) {
  return simd::HWY_NAMESPACE::detail::load<Number, kStep<S> / kRegisterLanes<Number>>(from);
}
template <class Number, class R, int n>
HWY_INLINE void store_accumulators(Number* to, const Parts<R, n>& accumulators) {
  simd::HWY_NAMESPACE::detail::store(to, accumulators);
}

/// The first few lanes from `taken`, the others from `before`.
template <class R, int n>
HWY_INLINE Parts<R, n> only(Whole, const Parts<R, n>& taken, const Parts<R, n>& /*before*/) {
  return taken;
}
template <class R, int n>
HWY_INLINE Parts<R, n> only(First part, const Parts<R, n>& taken, const Parts<R, n>& before) {
  return select(first_lanes<hn::TFromV<R>, n>(part.count), taken, before);
}

/// All lanes merged, by halves.
template <class Op, class R, int n>
HWY_INLINE typename Op::Number merge_lanes(const Parts<R, n>& v) {
  using Number = typename Op::Number;
  if constexpr (Op::kAdds && std::is_same_v<Number, double>) {
    if constexpr (kLanes<Number> < n * kRegisterLanes<Number>) {
      return add_lanes(v.low + v.high);
    } else {
      return add_lanes(v);
    }
  } else {
    constexpr int kCount = n * kRegisterLanes<Number>;
    Number numbers[kCount];
    store_accumulators(static_cast<Number*>(numbers), v);
    for (int width = kCount / 2; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) {
        numbers[lane] = Op::merge(numbers[lane], numbers[lane + width]);
      }
    }
    return numbers[0];
  }
}

/// The most outputs that a task keeps in its accumulators, so that they stay in the first-level cache.
constexpr int64_t kMaxWidth = 512;
constexpr int64_t kWidthWithRoom = kMaxWidth + 16;
/// The elements of one row over all outputs of a tile in the row walk: short runs of neighbours are read in turn.
constexpr int64_t kRowTileElements = 2048;
/// The number of rows of columns taken in between a load and a store of their accumulators.
constexpr int kRows = 4;

/// The tasks of one reduction. A task takes a tile of outputs that neighbour each other along the innermost kept axis,
/// and some of the rows that are reduced into them. Two ways to walk over a tile's rows:
///  columns: the innermost axis is kept. A row holds one element for each output of the tile, side by side.
///  rows: the innermost axis is reduced. A row holds one run for each output, or a piece of it if it is long.
template <class Op, class S>
class Reduction {
 public:
  using Number = typename Op::Number;

  Reduction(const ReduceShape& shape, const S* x, const double* mean)
      : axes_(shape),
        outer_kept_(without_last(axes_.kept)),
        outer_kept_strides_{without_last(axes_.kept_x), without_last(axes_.kept_y)},
        outputs_(axes_.kept.back()),
        output_x_(axes_.kept_x.back()),
        output_y_(axes_.kept_y.back()),
        x_(x),
        mean_(mean) {
    if (axes_.innermost_is_kept) {
      outer_reduced_ = axes_.reduced;
      outer_reduced_x_ = {axes_.reduced_x};
      width_ = std::min(outputs_, kMaxWidth);
    } else {
      outer_reduced_ = without_last(axes_.reduced);
      outer_reduced_x_ = {without_last(axes_.reduced_x)};
      run_ = axes_.reduced.back();
      run_stride_ = axes_.reduced_x.back();
      piece_ = std::min(run_, kTaskElements);
      pieces_ = ceil_div(run_, piece_);
      width_ = std::clamp<int64_t>(kRowTileElements / piece_, 1, std::min(outputs_, kMaxWidth));
    }
    rows_ = outer_reduced_.numel() * pieces_;
    part_rows_ = std::clamp<int64_t>(kTaskElements / (width_ * piece_), 1, rows_);
  }

  /// Calls store(offset in y, reduced value) for every output.
  template <class Store>
  void run(Store&& store) const {
    const int64_t tiles = outer_kept_.numel() * ceil_div(outputs_, width_);
    const int64_t parts = ceil_div(rows_, part_rows_);
    const int64_t grain = std::max<int64_t>(kTaskElements / (width_ * piece_ * part_rows_), 1);
    if (parts == 1) {
      parallel_for(0, tiles, grain, [&](int64_t begin, int64_t end) {
        std::array<Number, kWidthWithRoom> results;
        for (int64_t number = begin; number < end; ++number) {
          const Tile tile = tile_at(number);
          reduce_rows(tile, 0, rows_, results.data());
          store_tile(tile, results.data(), store);
        }
      });
      return;
    }
    std::vector<Number> partial(static_cast<size_t>(tiles * parts * width_));
    parallel_for(0, tiles * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % parts * part_rows_;
        const Tile tile = tile_at(task / parts);
        std::array<Number, kWidthWithRoom> results;
        reduce_rows(tile, first, std::min(first + part_rows_, rows_), results.data());
        std::copy_n(results.data(), tile.count, partial.data() + task * width_);
      }
    });
    for (int64_t number = 0; number < tiles; ++number) {
      const Tile tile = tile_at(number);
      Number* results = partial.data() + number * parts * width_;
      for (int64_t part = 1; part < parts; ++part) {
        for (int64_t i = 0; i < tile.count; ++i) {
          results[i] = Op::merge(results[i], results[part * width_ + i]);
        }
      }
      store_tile(tile, results, store);
    }
  }

 private:
  /// Neighbouring outputs: offsets of the first one and how many.
  struct Tile {
    int64_t x, y, count;
  };

  Tile tile_at(int64_t number) const {
    const int64_t tiles = ceil_div(outputs_, width_);
    const int64_t first = number % tiles * width_;
    const auto [x, y] = Odometer<2>(outer_kept_, outer_kept_strides_, number / tiles).offsets();
    return {.x = x + first * output_x_, .y = y + first * output_y_, .count = std::min(width_, outputs_ - first)};
  }

  template <class Store>
  void store_tile(const Tile& tile, const Number* results, Store&& store) const {
    for (int64_t i = 0; i < tile.count; ++i) {
      store(tile.y + i * output_y_, results[i]);
    }
  }

  /// Reduces rows [first, last) of a tile. `results` has room for one more vector after them.
  void reduce_rows(const Tile& tile, int64_t first, int64_t last, Number* results) const {
    std::array<Number, kWidthWithRoom> means;
    for (int64_t i = 0; i < tile.count; ++i) {
      means[static_cast<size_t>(i)] = mean_ == nullptr ? 0 : static_cast<Number>(mean_[tile.y + i * output_y_]);
    }
    std::fill_n(results, tile.count, Op::kStart);
    if (axes_.innermost_is_kept) {
      reduce_columns(tile, first, last, means.data(), results);
    } else {
      reduce_runs(tile, first, last, means.data(), results);
    }
  }

  /// `count` elements that lie `stride` apart, side by side: the elements themselves, or copies.
  static const S* dense(const S* x, int64_t count, int64_t stride, S* copies) {
    if (stride == 1) {
      return x;
    }
    for (int64_t i = 0; i < count; ++i) {
      copies[i] = x[i * stride];
    }
    return copies;
  }

  void reduce_columns(const Tile& tile, int64_t first, int64_t last, const Number* means, Number* results) const {
    Odometer<1> position(outer_reduced_, outer_reduced_x_, first);
    Scratch scratch;
    S* copies = scratch.take<S>(output_x_ == 1 ? 0 : kRows * kMaxWidth);
    for (int64_t row = first; row < last;) {
      if (last - row >= kRows) {
        reduce_few_columns<kRows>(tile, position, means, copies, results);
        row += kRows;
      } else {
        reduce_few_columns<1>(tile, position, means, copies, results);
        ++row;
      }
    }
  }

  /// Takes in `rows` rows, one after the other.
  template <int rows>
  void reduce_few_columns(const Tile& tile, Odometer<1>& position, const Number* means, S* copies,
                          Number* results) const {
    std::array<const S*, rows> x;
    for (size_t row = 0; row < rows; ++row) {
      x[row] = dense(x_ + tile.x + position.offsets()[0], tile.count, output_x_, copies + row * kMaxWidth);
      position.next();
    }
    for_each_lanes<compute_t<S>>(tile.count, [&](int64_t i, auto part) {
      const auto mean = load_accumulators<S>(means + i);
      auto sums = load_accumulators<S>(static_cast<const Number*>(results) + i);
      for (const S* of_row : x) {
        sums = Op::take(sums, load_as<Number>(of_row + i, part), mean);
      }
      store_accumulators(results + i, sums);
    });
  }

  void reduce_runs(const Tile& tile, int64_t first, int64_t last, const Number* means, Number* results) const {
    Odometer<1> position(outer_reduced_, outer_reduced_x_, first / pieces_);
    for (int64_t row = first; row < last; ++row) {
      const int64_t start = row % pieces_ * piece_;
      const int64_t count = std::min(piece_, run_ - start);
      const S* x = x_ + tile.x + position.offsets()[0] + start * run_stride_;
      for (int64_t i = 0; i < tile.count; ++i) {
        results[i] = Op::merge(results[i], reduce_run(x + i * output_x_, count, means[i]));
      }
      if (start + count == run_) {
        position.next();
      }
    }
  }

  Number reduce_run(const S* x, int64_t count, Number mean) const {
    if (run_stride_ == 1) {
      return reduce_dense(x, count, mean);
    }
    Number result = Op::kStart;
    Scratch scratch;
    S* copies = scratch.take<S>(kMaxWidth);
    for (int64_t i = 0; i < count; i += kMaxWidth) {
      const int64_t some = std::min(kMaxWidth, count - i);
      result = Op::merge(result, reduce_dense(dense(x + i * run_stride_, some, run_stride_, copies), some, mean));
    }
    return result;
  }

  /// The number of chains is the same for every target, since it decides about bits.
  static Number reduce_dense(const S* x, int64_t count, Number mean) {
    using V = Accumulators<Number, S>;
    constexpr int64_t step = kStep<S>;
    constexpr int kChains = kStep<S> * sizeof(Number) > 64 ? 2 : 4;
    const V means = same<Number, S>(mean);
    V chains[kChains];
    for (V& chain : chains) {
      chain = same<Number, S>(Op::kStart);
    }
    int64_t i = 0;
    for (; i + kChains * step <= count; i += kChains * step) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        chains[c] = Op::take(chains[c], load_as<Number>(x + i + c * step, Whole{}), means);
      }
    }
    for_each_lanes<compute_t<S>>(count - i, [&](int64_t at, auto part) {
      chains[0] = only(part, Op::take(chains[0], load_as<Number>(x + i + at, part), means), chains[0]);
    });
    if (count < kChains * step) {  // the other chains are empty
      return merge_lanes<Op>(chains[0]);
    }
    if constexpr (kChains == 4) {
      chains[0] = Op::merge(chains[0], chains[2]);
      chains[1] = Op::merge(chains[1], chains[3]);
    }
    return merge_lanes<Op>(Op::merge(chains[0], chains[1]));
  }

  ReduceAxes axes_;
  Sizes outer_kept_;
  std::array<Strides, 2> outer_kept_strides_;  // of x and y
  int64_t outputs_, output_x_, output_y_;      // the innermost kept axis
  Sizes outer_reduced_;
  std::array<Strides, 1> outer_reduced_x_;
  int64_t run_ = 1, run_stride_ = 0;  // the innermost reduced axis of the row walk
  int64_t piece_ = 1, pieces_ = 1;    // length and number of the pieces of a run
  int64_t width_ = 1;                 // outputs of a tile
  int64_t rows_ = 1, part_rows_ = 1;  // rows of a tile, and of one task
  const S* x_;
  const double* mean_;
};

/// y = scale · Operation over x, of elements S; mean as ReduceKernels::fold takes it.
template <class Operation, class S, class Y>
void fold_as(const ReduceShape& shape, const void* x, const double* mean, void* y, double scale) {
  using Number = typename Operation::Number;
  Y* out = static_cast<Y*>(y);
  Reduction<Operation, S>(shape, static_cast<const S*>(x), mean).run([&](int64_t i, Number value) {
    if constexpr (Operation::kAdds && std::is_same_v<Number, double>) {
      value *= scale;
    }
    assign(out[i], static_cast<compute_t<Y>>(value));
  });
}

}  // namespace

void fold(Fold f, const ReduceShape& shape, DType dtype, const void* x, const double* mean, void* y, double scale) {
  with_fold(f, dtype, [&]<class Operation, class S, class Y>(Folded<Operation, S, Y>) {
    fold_as<Operation, S, Y>(shape, x, mean, y, scale);
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

namespace cpu {

/// Does ReduceKernels::argmax.
void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
            const void* x, int64_t* y) {
  dispatch_numeric("argmax", dtype, [&]<class T>(T) {
    const int64_t grain = std::max<int64_t>(32768 / length, 1);
    parallel_for(0, sizes.numel(), grain, [&](int64_t begin, int64_t end) {
      const std::array<Strides, 1> of_x{x_strides};
      Odometer<1> position(sizes, of_x, begin);
      for (int64_t output = begin; output < end; ++output, position.next()) {
        const T* row = static_cast<const T*>(x) + position.offsets()[0];
        int64_t best = 0;
        auto largest = static_cast<compute_t<T>>(row[0]);
        for (int64_t i = 1; i < length && (last || largest == largest); ++i) {
          const auto value = static_cast<compute_t<T>>(row[i * stride]);
          const bool is_better = value > largest || (last && value == largest && largest == largest);
          if (is_better || value != value) {
            best = i;
            largest = value;
          }
        }
        y[output] = best;
      }
    });
  });
}

constexpr ReduceKernels kTable{.fold = NORMA_SIMD_CALL(fold), .argmax = argmax};

}  // namespace cpu

constinit const ReduceKernels reduce_cpu = cpu::kTable;

}  // namespace norma::kernels
#endif
