#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/reduce/reduce_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/multiply_add.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/strided_loop.h"
#include "ops/reduce/kernels.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
namespace {

// Every reduction is cut into tasks by its shape alone: a task reduces a fixed part of the reduced axes for a fixed
// part of the outputs, and the parts are merged in order. So the bits do not depend on the number of threads.

/// Elements one task should see: enough to hide its overhead, few enough to feed all threads.
constexpr int64_t kTaskElements = 32768;
/// Outputs a task keeps in its accumulators, so that they stay in the first-level cache.
constexpr int64_t kMaxWidth = 512;
/// Elements of one row over all outputs of a tile in the row walk: short runs of neighbours are read one after another.
constexpr int64_t kRowTileElements = 2048;
/// Independent accumulators of the row walk: for long runs, and for what is left of them.
constexpr int64_t kLanes = 32;
constexpr int64_t kShortLanes = 8;

/// What is summed in: float64 for floating dtypes, the dtype itself otherwise.
template <class T>
using sum_t = std::conditional_t<std::is_floating_point_v<compute_t<T>>, double, T>;

/// An element as what arithmetic on its dtype is done in.
template <class T>
compute_t<T> value_of(T x) {
  return static_cast<compute_t<T>>(x);
}

template <class T>
struct Sum {
  using Accumulator = sum_t<T>;
  static constexpr Accumulator kStart = 0;
  static Accumulator add(Accumulator a, T x, Accumulator /*mean*/) { return a + static_cast<Accumulator>(value_of(x)); }
  static Accumulator merge(Accumulator a, Accumulator b) { return a + b; }
};

template <class T>
struct SquaredDifferences {
  using Accumulator = double;
  static constexpr Accumulator kStart = 0;
  static Accumulator add(Accumulator a, T x, Accumulator mean) {
    const double difference = static_cast<double>(x) - mean;
    return multiply_add(difference, difference, a);
  }
  static Accumulator merge(Accumulator a, Accumulator b) { return a + b; }
};

template <class T>
struct Product {
  using Accumulator = sum_t<T>;
  static constexpr Accumulator kStart = 1;
  static Accumulator merge(Accumulator a, Accumulator b) {
    if constexpr (std::is_integral_v<Accumulator>) {  // wraps around; signed overflow would be undefined
      return static_cast<Accumulator>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
  static Accumulator add(Accumulator a, T x, Accumulator /*mean*/) {
    return merge(a, static_cast<Accumulator>(value_of(x)));
  }
};

template <class T>
struct Max {
  using Accumulator = compute_t<T>;
  static constexpr Accumulator kStart = std::is_floating_point_v<Accumulator>
                                            ? -std::numeric_limits<Accumulator>::infinity()
                                            : std::numeric_limits<Accumulator>::lowest();
  static Accumulator merge(Accumulator a, Accumulator b) {
    return b > a || b != b ? b : a;  // a NaN enters, and nothing is larger than it
  }
  static Accumulator add(Accumulator a, T x, Accumulator /*mean*/) { return merge(a, value_of(x)); }
};

/// The merged axes of a reduction, kept and reduced ones apart, each outermost first. At least one of each.
struct Walk {
  Sizes kept, reduced;
  Strides kept_x, kept_y, reduced_x;
  bool innermost_is_kept = false;

  explicit Walk(const ReduceShape& shape) {
    const StridedLoop<2> loop = make_strided_loop<2>(shape.sizes, {shape.x_strides, shape.y_strides});
    innermost_is_kept = loop.strides[1].back() != 0;
    for (int64_t axis = 0; axis < loop.sizes.size(); ++axis) {
      add_axis(loop.sizes[axis], loop.strides[0][axis], loop.strides[1][axis], loop.strides[1][axis] != 0);
    }
    if (kept.empty()) {
      add_axis(1, 0, 0, /* is_kept= */ true);
    }
    if (reduced.empty()) {
      add_axis(1, 0, 0, /* is_kept= */ false);
    }
  }

 private:
  void add_axis(int64_t size, int64_t x_stride, int64_t y_stride, bool is_kept) {
    (is_kept ? kept : reduced).push_back(size);
    (is_kept ? kept_x : reduced_x).push_back(x_stride);
    if (is_kept) {
      kept_y.push_back(y_stride);
    }
  }
};

/// Counts through a list of axes in row-major order and keeps an offset in step.
class Odometer {
 public:
  Odometer(const Sizes& sizes, const Strides& strides, int64_t position)
      : sizes_(sizes), strides_(strides), index_(Sizes::filled(sizes.size(), 0)) {
    for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
      index_[axis] = position % sizes[axis];
      position /= sizes[axis];
      offset_ += index_[axis] * strides[axis];
    }
  }
  [[nodiscard]] int64_t offset() const { return offset_; }
  void next() {
    for (int64_t axis = sizes_.size() - 1; axis >= 0; --axis) {
      offset_ += strides_[axis];
      if (++index_[axis] < sizes_[axis]) {
        return;
      }
      offset_ -= sizes_[axis] * strides_[axis];
      index_[axis] = 0;
    }
  }

 private:
  const Sizes& sizes_;
  const Strides& strides_;
  Sizes index_;
  int64_t offset_ = 0;
};

int64_t offset_at(const Sizes& sizes, const Strides& strides, int64_t position) {
  return Odometer(sizes, strides, position).offset();
}

Sizes without_last(Sizes sizes) {
  sizes.erase(sizes.size() - 1);
  return sizes;
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Merges the first multiple of `lanes` elements of a dense run into `result`; returns how many those are.
template <class Op, int64_t lanes, class T>
int64_t reduce_lanes(const T* x, int64_t count, typename Op::Accumulator mean, typename Op::Accumulator& result) {
  const int64_t whole = count - count % lanes;
  if (whole == 0) {
    return 0;
  }
  std::array<typename Op::Accumulator, lanes> sums;
  sums.fill(Op::kStart);
  for (int64_t i = 0; i < whole; i += lanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < lanes; ++lane) {
      sums[static_cast<size_t>(lane)] = Op::add(sums[static_cast<size_t>(lane)], x[i + lane], mean);
    }
  }
  for (size_t width = lanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) {
      sums[lane] = Op::merge(sums[lane], sums[lane + width]);
    }
  }
  result = Op::merge(result, sums[0]);
  return whole;
}

/// Reduces `count` elements that lie `stride` apart.
template <class Op, class T>
typename Op::Accumulator reduce_run(const T* x, int64_t count, int64_t stride, typename Op::Accumulator mean) {
  typename Op::Accumulator result = Op::kStart;
  int64_t i = 0;
  if (stride == 1) {
    i += reduce_lanes<Op, kLanes>(x, count, mean, result);
    i += reduce_lanes<Op, kShortLanes>(x + i, count - i, mean, result);
  }
  for (; i < count; ++i) {
    result = Op::add(result, x[i * stride], mean);
  }
  return result;
}

/// The tasks of one reduction. A task takes a tile of outputs that neighbour each other along the innermost kept axis,
/// and some of the rows that are reduced into them. Two ways to walk over a tile's rows:
///  columns: the innermost axis is kept. A row holds one element for each output of the tile, side by side.
///  rows: the innermost axis is reduced. A row holds one run for each output, or a piece of it if it is long.
template <class Op, class T>
class Reduction {
 public:
  using Accumulator = typename Op::Accumulator;

  Reduction(const ReduceShape& shape, const T* x, const T* mean)
      : walk_(shape),
        outer_kept_(without_last(walk_.kept)),
        outer_kept_x_(without_last(walk_.kept_x)),
        outer_kept_y_(without_last(walk_.kept_y)),
        outputs_(walk_.kept.back()),
        output_x_(walk_.kept_x.back()),
        output_y_(walk_.kept_y.back()),
        x_(x),
        mean_(mean) {
    if (walk_.innermost_is_kept) {
      outer_reduced_ = walk_.reduced;
      outer_reduced_x_ = walk_.reduced_x;
      width_ = std::min(outputs_, kMaxWidth);
    } else {
      outer_reduced_ = without_last(walk_.reduced);
      outer_reduced_x_ = without_last(walk_.reduced_x);
      run_ = walk_.reduced.back();
      run_stride_ = walk_.reduced_x.back();
      piece_ = std::min(run_, kTaskElements);
      pieces_ = divide_up(run_, piece_);
      width_ = std::clamp<int64_t>(kRowTileElements / piece_, 1, std::min(outputs_, kMaxWidth));
    }
    rows_ = outer_reduced_.numel() * pieces_;
    part_rows_ = std::clamp<int64_t>(kTaskElements / (width_ * piece_), 1, rows_);
  }

  /// Calls store(offset in y, reduced value) for every output.
  template <class Store>
  void run(Store&& store) const {
    const int64_t tiles = outer_kept_.numel() * divide_up(outputs_, width_);
    const int64_t parts = divide_up(rows_, part_rows_);
    const int64_t grain = std::max<int64_t>(kTaskElements / (width_ * piece_ * part_rows_), 1);
    if (parts == 1) {
      parallel_for(0, tiles, grain, [&](int64_t begin, int64_t end) {
        std::array<Accumulator, kMaxWidth> results;
        for (int64_t number = begin; number < end; ++number) {
          const Tile tile = tile_at(number);
          reduce_rows(tile, 0, rows_, results.data());
          store_tile(tile, results.data(), store);
        }
      });
      return;
    }
    std::vector<Accumulator> partial(static_cast<size_t>(tiles * parts * width_));
    parallel_for(0, tiles * parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % parts * part_rows_;
        reduce_rows(tile_at(task / parts), first, std::min(first + part_rows_, rows_), partial.data() + task * width_);
      }
    });
    for (int64_t number = 0; number < tiles; ++number) {
      const Tile tile = tile_at(number);
      Accumulator* results = partial.data() + number * parts * width_;
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
    const int64_t tiles = divide_up(outputs_, width_);
    const int64_t first = number % tiles * width_;
    return {.x = offset_at(outer_kept_, outer_kept_x_, number / tiles) + first * output_x_,
            .y = offset_at(outer_kept_, outer_kept_y_, number / tiles) + first * output_y_,
            .count = std::min(width_, outputs_ - first)};
  }

  template <class Store>
  void store_tile(const Tile& tile, const Accumulator* results, Store&& store) const {
    for (int64_t i = 0; i < tile.count; ++i) {
      store(tile.y + i * output_y_, results[i]);
    }
  }

  /// Reduces rows [first, last) of a tile.
  void reduce_rows(const Tile& tile, int64_t first, int64_t last, Accumulator* results) const {
    std::array<Accumulator, kMaxWidth> means;
    for (int64_t i = 0; i < tile.count; ++i) {
      means[static_cast<size_t>(i)] =
          mean_ == nullptr ? 0 : static_cast<Accumulator>(value_of(mean_[tile.y + i * output_y_]));
    }
    std::fill_n(results, tile.count, Op::kStart);
    if (walk_.innermost_is_kept) {
      reduce_columns(tile, first, last, means.data(), results);
    } else {
      reduce_runs(tile, first, last, means.data(), results);
    }
  }

  void reduce_columns(const Tile& tile, int64_t first, int64_t last, const Accumulator* means,
                      Accumulator* results) const {
    Odometer position(outer_reduced_, outer_reduced_x_, first);
    for (int64_t row = first; row < last; ++row) {
      const T* x = x_ + tile.x + position.offset();
      if (output_x_ == 1) {
#pragma omp simd
        for (int64_t i = 0; i < tile.count; ++i) {
          results[i] = Op::add(results[i], x[i], means[i]);
        }
      } else {
        for (int64_t i = 0; i < tile.count; ++i) {
          results[i] = Op::add(results[i], x[i * output_x_], means[i]);
        }
      }
      position.next();
    }
  }

  void reduce_runs(const Tile& tile, int64_t first, int64_t last, const Accumulator* means,
                   Accumulator* results) const {
    Odometer position(outer_reduced_, outer_reduced_x_, first / pieces_);
    for (int64_t row = first; row < last; ++row) {
      const int64_t start = row % pieces_ * piece_;
      const int64_t count = std::min(piece_, run_ - start);
      const T* x = x_ + tile.x + position.offset() + start * run_stride_;
      for (int64_t i = 0; i < tile.count; ++i) {
        results[i] = Op::merge(results[i], reduce_run<Op>(x + i * output_x_, count, run_stride_, means[i]));
      }
      if (start + count == run_) {
        position.next();
      }
    }
  }

  Walk walk_;
  Sizes outer_kept_;
  Strides outer_kept_x_, outer_kept_y_;
  int64_t outputs_, output_x_, output_y_;  // the innermost kept axis
  Sizes outer_reduced_;
  Strides outer_reduced_x_;
  int64_t run_ = 1, run_stride_ = 0;  // the innermost reduced axis of the row walk
  int64_t piece_ = 1, pieces_ = 1;    // how long runs are cut
  int64_t width_ = 1;                 // outputs of a tile
  int64_t rows_ = 1, part_rows_ = 1;  // rows of a tile, and of one task
  const T* x_;
  const T* mean_;
};

void sum(const ReduceShape& shape, DType dtype, const void* x, void* y, double scale) {
  dispatch_numeric("sum", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<Sum<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, sum_t<T> value) {
      if constexpr (std::is_floating_point_v<compute_t<T>>) {
        assign(out[i], static_cast<compute_t<T>>(value * scale));
      } else {
        out[i] = value;
      }
    });
  });
}

void squared_differences(const ReduceShape& shape, DType dtype, const void* x, const void* mean, void* y,
                         double scale) {
  dispatch_floating("var", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<SquaredDifferences<T>, T>(shape, static_cast<const T*>(x), static_cast<const T*>(mean))
        .run([&](int64_t i, double value) { out[i] = static_cast<T>(value * scale); });
  });
}

void product(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("prod", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<Product<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, sum_t<T> value) {
      assign(out[i], static_cast<compute_t<T>>(value));
    });
  });
}

void max(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("max", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<Max<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, compute_t<T> value) {
      assign(out[i], value);
    });
  });
}

void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
            const void* x, int64_t* y) {
  dispatch_numeric("argmax", dtype, [&]<class T>(T) {
    const int64_t grain = std::max<int64_t>(kTaskElements / length, 1);
    parallel_for(0, sizes.numel(), grain, [&](int64_t begin, int64_t end) {
      Odometer position(sizes, x_strides, begin);
      for (int64_t output = begin; output < end; ++output) {
        const T* row = static_cast<const T*>(x) + position.offset();
        int64_t best = 0;
        auto largest = value_of(row[0]);
        for (int64_t i = 1; i < length && (last || largest == largest); ++i) {
          const auto value = value_of(row[i * stride]);
          const bool is_better = value > largest || (last && value == largest && largest == largest);
          if (is_better || value != value) {
            best = i;
            largest = value;
          }
        }
        y[output] = best;
        position.next();
      }
    });
  });
}

}  // namespace

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

HWY_EXPORT(sum);
HWY_EXPORT(squared_differences);
HWY_EXPORT(product);
HWY_EXPORT(max);
HWY_EXPORT(argmax);

constinit const ReduceKernels reduce_cpu{.sum = NORMA_SIMD_CALL(sum),
                                         .squared_differences = NORMA_SIMD_CALL(squared_differences),
                                         .product = NORMA_SIMD_CALL(product),
                                         .max = NORMA_SIMD_CALL(max),
                                         .argmax = NORMA_SIMD_CALL(argmax)};

}  // namespace norma::kernels
#endif
