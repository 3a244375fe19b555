#include "core/parallel.h"
#include "core/strided_loop.h"
#include "ops/reduce/kernels.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

namespace norma::kernels {
namespace {

// Every reduction is cut into tasks by its shape alone: a task reduces a fixed part of the reduced axes for a fixed
// part of the outputs, and the parts are merged in order. So the bits do not depend on the number of threads.

/// Elements one task should see: enough to hide its overhead, few enough to feed all threads.
constexpr int64_t kTaskElements = 32768;
/// Outputs a task of the column walk keeps in its accumulators: they stay in the first-level cache.
constexpr int64_t kMaxColumns = 512;
/// Independent accumulators of the row walk: for long runs, and for what is left of them.
constexpr int64_t kLanes = 32;
constexpr int64_t kShortLanes = 8;

/// What is summed in: float64 for floating dtypes, the dtype itself otherwise.
template <class T>
using sum_t = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <class T>
struct Sum {
  using Accumulator = sum_t<T>;
  static constexpr Accumulator kStart = 0;
  static Accumulator add(Accumulator a, T x, Accumulator /*mean*/) { return a + static_cast<Accumulator>(x); }
  static Accumulator merge(Accumulator a, Accumulator b) { return a + b; }
};

template <class T>
struct SquaredDifferences {
  using Accumulator = double;
  static constexpr Accumulator kStart = 0;
  static Accumulator add(Accumulator a, T x, Accumulator mean) {
    const double difference = static_cast<double>(x) - mean;
    return a + difference * difference;
  }
  static Accumulator merge(Accumulator a, Accumulator b) { return a + b; }
};

template <class T>
struct Max {
  using Accumulator = T;
  static constexpr Accumulator kStart =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  static Accumulator merge(Accumulator a, Accumulator b) {
    return b > a || b != b ? b : a;  // a NaN enters, and nothing is larger than it
  }
  static Accumulator add(Accumulator a, T x, Accumulator /*mean*/) { return merge(a, x); }
};

/// The merged axes of a reduction, kept and reduced ones apart, each outermost first.
struct Walk {
  Sizes kept, reduced;
  Strides kept_x, kept_y, reduced_x;
  bool innermost_is_kept = false;

  explicit Walk(const ReduceShape& shape) {
    const StridedLoop<2> loop = make_strided_loop<2>(shape.sizes, {shape.x_strides, shape.y_strides});
    for (int64_t axis = 0; axis < loop.sizes.size(); ++axis) {
      // A single element is an axis of size 1 with strides 0: it counts as reduced.
      if (loop.strides[1][axis] != 0) {
        kept.push_back(loop.sizes[axis]);
        kept_x.push_back(loop.strides[0][axis]);
        kept_y.push_back(loop.strides[1][axis]);
      } else {
        reduced.push_back(loop.sizes[axis]);
        reduced_x.push_back(loop.strides[0][axis]);
      }
    }
    innermost_is_kept = loop.strides[1].back() != 0;
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

/// The innermost axis is reduced: each output is the sum over runs of memory.
template <class Op, class T>
class RowWalk {
 public:
  using Accumulator = typename Op::Accumulator;

  RowWalk(const Walk& walk, const T* x, const T* mean)
      : walk_(walk),
        outer_(without_last(walk.reduced)),
        outer_x_(without_last(walk.reduced_x)),
        run_(walk.reduced.back()),
        run_stride_(walk.reduced_x.back()),
        length_(walk.reduced.numel()),
        x_(x),
        mean_(mean) {}

  template <class Store>
  void operator()(Store&& store) const {
    const int64_t outputs = walk_.kept.numel();
    const int64_t parts = divide_up(length_, kTaskElements);
    if (parts == 1) {
      parallel_for(0, outputs, std::max<int64_t>(1, kTaskElements / length_), [&](int64_t begin, int64_t end) {
        Odometer x_position(walk_.kept, walk_.kept_x, begin);
        Odometer y_position(walk_.kept, walk_.kept_y, begin);
        for (int64_t output = begin; output < end; ++output) {
          store(y_position.offset(), reduce_part(x_position.offset(), y_position.offset(), 0, length_));
          x_position.next();
          y_position.next();
        }
      });
      return;
    }
    std::vector<Accumulator> partial(static_cast<size_t>(outputs * parts));
    parallel_for(0, outputs * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t output = task / parts;
        const int64_t first = task % parts * kTaskElements;
        partial[static_cast<size_t>(task)] =
            reduce_part(offset_at(walk_.kept, walk_.kept_x, output), offset_at(walk_.kept, walk_.kept_y, output), first,
                        std::min(first + kTaskElements, length_));
      }
    });
    for (int64_t output = 0; output < outputs; ++output) {
      Accumulator result = Op::kStart;
      for (int64_t part = 0; part < parts; ++part) {
        result = Op::merge(result, partial[static_cast<size_t>(output * parts + part)]);
      }
      store(offset_at(walk_.kept, walk_.kept_y, output), result);
    }
  }

 private:
  /// Reduces elements [first, last) of one output, counted in the order of the walk.
  Accumulator reduce_part(int64_t x_offset, int64_t y_offset, int64_t first, int64_t last) const {
    const auto mean = mean_ == nullptr ? Accumulator{} : static_cast<Accumulator>(mean_[y_offset]);
    if (outer_.empty()) {
      return reduce_run<Op>(x_ + x_offset + first * run_stride_, last - first, run_stride_, mean);
    }
    Odometer position(outer_, outer_x_, first / run_);
    int64_t column = first % run_;
    Accumulator result = Op::kStart;
    for (int64_t done = first; done < last;) {
      const int64_t count = std::min(run_ - column, last - done);
      const T* run = x_ + x_offset + position.offset() + column * run_stride_;
      result = Op::merge(result, reduce_run<Op>(run, count, run_stride_, mean));
      done += count;
      column = 0;
      position.next();
    }
    return result;
  }

  const Walk& walk_;
  Sizes outer_;
  Strides outer_x_;
  int64_t run_, run_stride_, length_;
  const T* x_;
  const T* mean_;
};

/// The innermost axis is kept: rows of neighbouring outputs are added up.
template <class Op, class T>
class ColumnWalk {
 public:
  using Accumulator = typename Op::Accumulator;

  ColumnWalk(const Walk& walk, const T* x, const T* mean)
      : walk_(walk),
        outer_(without_last(walk.kept)),
        outer_x_(without_last(walk.kept_x)),
        outer_y_(without_last(walk.kept_y)),
        columns_(walk.kept.back()),
        x_stride_(walk.kept_x.back()),
        y_stride_(walk.kept_y.back()),
        rows_(walk.reduced.numel()),
        x_(x),
        mean_(mean) {}

  template <class Store>
  void operator()(Store&& store) const {
    const int64_t width = std::min(columns_, kMaxColumns);
    const int64_t column_parts = divide_up(columns_, width);
    const int64_t part_rows = std::max<int64_t>(kTaskElements / width, 1);
    const int64_t row_parts = divide_up(rows_, part_rows);
    const int64_t tiles = outer_.numel() * column_parts;
    std::vector<Accumulator> partial(static_cast<size_t>(row_parts > 1 ? tiles * row_parts * width : 0));

    const int64_t grain = std::max<int64_t>(kTaskElements / (width * std::min(rows_, part_rows)), 1);
    parallel_for(0, tiles * row_parts, grain, [&](int64_t begin, int64_t end) {
      std::vector<Accumulator> own(static_cast<size_t>(row_parts > 1 ? 0 : width));
      for (int64_t task = begin; task < end; ++task) {
        const Tile tile = tile_at(task / row_parts, width, column_parts);
        const int64_t first = task % row_parts * part_rows;
        Accumulator* sums = row_parts > 1 ? partial.data() + task * width : own.data();
        reduce_rows(tile, first, std::min(first + part_rows, rows_), sums);
        if (row_parts == 1) {
          for (int64_t i = 0; i < tile.count; ++i) {
            store(tile.y + i * y_stride_, sums[i]);
          }
        }
      }
    });
    if (row_parts == 1) {
      return;
    }
    for (int64_t number = 0; number < tiles; ++number) {
      const Tile tile = tile_at(number, width, column_parts);
      Accumulator* result = partial.data() + number * row_parts * width;
      for (int64_t part = 1; part < row_parts; ++part) {
        for (int64_t i = 0; i < tile.count; ++i) {
          result[i] = Op::merge(result[i], result[part * width + i]);
        }
      }
      for (int64_t i = 0; i < tile.count; ++i) {
        store(tile.y + i * y_stride_, result[i]);
      }
    }
  }

 private:
  /// Neighbouring outputs: offsets of the first one and how many.
  struct Tile {
    int64_t x, y, count;
  };

  Tile tile_at(int64_t number, int64_t width, int64_t column_parts) const {
    const int64_t first = number % column_parts * width;
    const int64_t outer = number / column_parts;
    return {.x = offset_at(outer_, outer_x_, outer) + first * x_stride_,
            .y = offset_at(outer_, outer_y_, outer) + first * y_stride_,
            .count = std::min(width, columns_ - first)};
  }

  void reduce_rows(const Tile& tile, int64_t first, int64_t last, Accumulator* sums) const {
    std::array<Accumulator, kMaxColumns> means;
    for (int64_t i = 0; i < tile.count; ++i) {
      means[static_cast<size_t>(i)] = mean_ == nullptr ? 0 : static_cast<Accumulator>(mean_[tile.y + i * y_stride_]);
    }
    std::fill_n(sums, tile.count, Op::kStart);
    Odometer position(walk_.reduced, walk_.reduced_x, first);
    for (int64_t row = first; row < last; ++row) {
      const T* x = x_ + tile.x + position.offset();
      if (x_stride_ == 1) {
#pragma omp simd
        for (int64_t i = 0; i < tile.count; ++i) {
          sums[i] = Op::add(sums[i], x[i], means[static_cast<size_t>(i)]);
        }
      } else {
        for (int64_t i = 0; i < tile.count; ++i) {
          sums[i] = Op::add(sums[i], x[i * x_stride_], means[static_cast<size_t>(i)]);
        }
      }
      position.next();
    }
  }

  const Walk& walk_;
  Sizes outer_;
  Strides outer_x_, outer_y_;
  int64_t columns_, x_stride_, y_stride_, rows_;
  const T* x_;
  const T* mean_;
};

template <class Op, class T, class Store>
void reduce(const ReduceShape& shape, const T* x, const T* mean, Store&& store) {
  const Walk walk(shape);
  if (walk.innermost_is_kept) {
    ColumnWalk<Op, T>(walk, x, mean)(store);
  } else {
    RowWalk<Op, T>(walk, x, mean)(store);
  }
}

void sum(const ReduceShape& shape, DType dtype, const void* x, void* y, double scale) {
  dispatch_numeric("sum", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    reduce<Sum<T>>(shape, static_cast<const T*>(x), static_cast<const T*>(nullptr), [&](int64_t i, sum_t<T> value) {
      if constexpr (std::is_floating_point_v<T>) {
        out[i] = static_cast<T>(value * scale);
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
    reduce<SquaredDifferences<T>>(shape, static_cast<const T*>(x), static_cast<const T*>(mean),
                                  [&](int64_t i, double value) { out[i] = static_cast<T>(value * scale); });
  });
}

void max(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("max", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    reduce<Max<T>>(shape, static_cast<const T*>(x), static_cast<const T*>(nullptr),
                   [&](int64_t i, T value) { out[i] = value; });
  });
}

void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, DType dtype, const void* x,
            int64_t* y) {
  dispatch_numeric("argmax", dtype, [&]<class T>(T) {
    const int64_t grain = std::max<int64_t>(kTaskElements / length, 1);
    parallel_for(0, sizes.numel(), grain, [&](int64_t begin, int64_t end) {
      Odometer position(sizes, x_strides, begin);
      for (int64_t output = begin; output < end; ++output) {
        const T* row = static_cast<const T*>(x) + position.offset();
        int64_t best = 0;
        for (int64_t i = 1; i < length && row[best * stride] == row[best * stride]; ++i) {
          const T value = row[i * stride];
          best = value > row[best * stride] || value != value ? i : best;
        }
        y[output] = best;
        position.next();
      }
    });
  });
}

}  // namespace

const ReduceKernels& reduce_cpu() {
  static constexpr ReduceKernels kKernels{
      .sum = sum, .squared_differences = squared_differences, .max = max, .argmax = argmax};
  return kKernels;
}

}  // namespace norma::kernels
