#include "core/cuda/copies_of_many.h"
#include "core/cuda/teams.h"
#include "ops/optimizer/formulas.h"

#include <cmath>

// The kernels of optimizers and of clipping, and their table.

namespace norma::kernels::NORMA_BACKEND {

// --- steps ----------------------------------------------------------------------------------------------------------

/// An item that a formula changes.
template <template <class> class Formula, class Item, class T>
struct Stepped {
  int64_t count;
  Item item;
  Formula<T> formula;

  explicit Stepped(const Item& of) : count(of.count), item(of) {}

  NORMA_DEVICE void read_numbers() { formula = Formula<T>(item); }
  [[nodiscard]] bool is_aligned() const { return are_aligned(item.p, item.gradient, item.m, item.v, item.result); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    T value[n];
    T gradient[n];
    T mean[n] = {};
    T square[n] = {};
    load<T, n>(static_cast<const T*>(item.p) + i, value);
    load<T, n>(static_cast<const T*>(item.gradient) + i, gradient);
    if (item.m != nullptr) {
      load<T, n>(static_cast<const T*>(item.m) + i, mean);
    }
    if (item.v != nullptr) {
      load<T, n>(static_cast<const T*>(item.v) + i, square);
    }
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      formula(value[j], gradient[j], mean[j], square[j]);
    }
    if (item.m != nullptr) {
      store<T, n>(static_cast<T*>(item.m) + i, mean);
    }
    if (item.v != nullptr) {
      store<T, n>(static_cast<T*>(item.v) + i, square);
    }
    store<T, n>(static_cast<T*>(item.result) + i, value);
  }
};

template <class T>
struct LambMove {
  int64_t count;
  LambItem item;
  T rate, ratio;

  explicit LambMove(const LambItem& of) : count(of.count), item(of) {}

  NORMA_DEVICE void read_numbers() {
    const LambStep now = numbers_of(item);
    const T weight = static_cast<T>(std::sqrt(item.squares[0]));
    const T length = static_cast<T>(std::sqrt(item.squares[1]));
    rate = static_cast<T>(now.rate);
    ratio = static_cast<T>(now.weight_decay) != 0 && weight > 0 && length > 0 ? weight / length : T(1);
  }
  [[nodiscard]] bool is_aligned() const { return are_aligned(item.p, item.result); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    T value[n];
    T direction[n];
    load<T, n>(static_cast<const T*>(item.p) + i, value);
    load<T, n>(static_cast<const T*>(item.result) + i, direction);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      value[j] -= rate * (ratio * direction[j]);
    }
    store<T, n>(static_cast<T*>(item.p) + i, value);
  }
};

template <template <class> class Formula, class Item>
void make_step(std::string_view op, DType dtype, std::span<const Item> items, const double* guard) {
  dispatch_floating(op, dtype, [&]<class T>(T) {
    change_all<kVectorOf<T>>(std::vector<Stepped<Formula, Item, T>>(items.begin(), items.end()), guard);
  });
}

inline void sgd(DType dtype, std::span<const SgdItem> items, const double* guard) {
  make_step<Sgd>("sgd", dtype, items, guard);
}

inline void adamw(DType dtype, std::span<const AdamWItem> items, const double* guard) {
  make_step<AdamW>("adamw", dtype, items, guard);
}

inline void lamb_direction(DType dtype, std::span<const LambItem> items, const double* guard) {
  make_step<LambDirection>("lamb", dtype, items, guard);
}

inline void lamb_move(DType dtype, std::span<const LambItem> items, const double* guard) {
  dispatch_floating("lamb", dtype, [&]<class T>(T) {
    change_all<kVectorOf<T>>(std::vector<LambMove<T>>(items.begin(), items.end()), guard);
  });
}

// --- averages, scales and limits ------------------------------------------------------------------------------------

/// to = to + *share · (from - to), or `from` where *share is 1: an average that equals the value stays as it is, where
/// (1 - share) · to + share · from would drift by rounded factors.
template <class T>
struct Averaged {
  int64_t count;
  T* to;
  const T* from;
  const double* share;

  [[nodiscard]] bool is_aligned() const { return are_aligned(to, from); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    T average[n];
    T value[n];
    load<T, n>(to + i, average);
    load<T, n>(from + i, value);
    const auto by = static_cast<T>(*share);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      average[j] = *share == 1 ? value[j] : average[j] + (value[j] - average[j]) * by;
    }
    store<T, n>(to + i, average);
  }
};

inline void average(DType dtype, const double* share, std::span<const CopyItem> items, const double* guard) {
  if (!is_floating(dtype)) {
    return move_all(dtype, items, guard);
  }
  dispatch_floating("average", dtype, [&]<class T>(T) {
    std::vector<Averaged<T>> list;
    for (const CopyItem& item : items) {
      list.push_back({.count = item.count,
                      .to = static_cast<T*>(item.to),
                      .from = static_cast<const T*>(item.from),
                      .share = share});
    }
    change_all<kVectorOf<T>>(list, guard);
  });
}

/// x = f(x), unless f leaves every number as it is.
template <class S, class F>
struct Mapped {
  int64_t count;
  S* x;
  F f;

  [[nodiscard]] bool is_aligned() const { return are_aligned(x); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    if (f.changes_nothing()) {
      return;
    }
    compute_t<S> numbers[n];
    load<S, n>(x + i, numbers);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      numbers[j] = f(numbers[j]);
    }
    store<S, n>(x + i, numbers);
  }
};

template <class T>
struct ScaledBy {
  const double* factor;

  NORMA_DEVICE bool changes_nothing() const { return *factor == 1; }
  NORMA_DEVICE T operator()(T x) const { return static_cast<T>(*factor) * x; }
};

/// Cuts x off at ±limit; NaN stays.
template <class T>
struct CutOff {
  T limit;

  NORMA_DEVICE bool changes_nothing() const { return false; }
  NORMA_DEVICE T operator()(T x) const { return x < -limit ? -limit : x > limit ? limit : x; }
};

template <class S, class F>
void map_all(std::span<const ChangedItem> items, const F& f) {
  std::vector<Mapped<S, F>> mapped;
  for (const ChangedItem& item : items) {
    mapped.push_back({.count = item.count, .x = static_cast<S*>(item.x), .f = f});
  }
  change_all<kVectorOf<S>>(mapped);
}

inline void scale(DType dtype, const double* factor, std::span<const ChangedItem> items) {
  dispatch_any_floating("scale", dtype, [&]<class S>(S) { map_all<S>(items, ScaledBy<compute_t<S>>{factor}); });
}

inline void cut_off(DType dtype, double limit, std::span<const ChangedItem> items) {
  dispatch_any_floating("cut_off", dtype,
                        [&]<class S>(S) { map_all<S>(items, CutOff<compute_t<S>>{static_cast<compute_t<S>>(limit)}); });
}

// --- sums of squares ------------------------------------------------------------------------------------------------

// A sum has two stages: the sums of pieces, then the sum of those. The order depends on the count of an item alone.

/// Holds the addresses of a SquaresItem in S.
template <class S>
struct Squares {
  int64_t count;
  const S* x;
  double* sum;

  explicit Squares(const SquaresItem& item) : count(item.count), x(static_cast<const S*>(item.x)), sum(item.sum) {}
};

/// sums[b] = the sum of the squares of piece b, with a block for each piece.
template <class S>
NORMA_KERNEL void add_squares(ItemList<Squares<S>> list, double* sums) {
  const int which = list.item_of(block());
  const Squares<S> item = list.items[which];
  const int64_t first = (block() - list.first_piece[which]) * kPiece;
  const int64_t last = first + kPiece < item.count ? first + kPiece : item.count;
  double sum = 0;
  for (int64_t i = first + thread(); i < last; i += threads()) {
    const auto value = static_cast<double>(to_number(item.x[i]));
    sum += value * value;
  }
  sum = BlockTeam(shared_memory<double>()).sum(sum);
  if (thread() == 0) {
    sums[block()] = sum;
  }
}

/// The sum of an item is the sum of its pieces, with a block for each item.
template <class S>
NORMA_KERNEL void add_pieces(ItemList<Squares<S>> list, const double* sums) {
  const int64_t which = block();
  double total = 0;
  for (int64_t i = list.first_piece[which] + thread(); i < list.first_piece[which + 1]; i += threads()) {
    total += sums[i];
  }
  total = BlockTeam(shared_memory<double>()).sum(total);
  if (thread() == 0) {
    *list.items[which].sum = total;
  }
}

/// Does OptimizerKernels::clipping with one block.
NORMA_KERNEL void find_clipping(int64_t count, const double* sums, double max_norm, double* norm_and_factor) {
  double total = 0;
  for (int64_t i = thread(); i < count; i += threads()) {
    total += sums[i];
  }
  total = BlockTeam(shared_memory<double>()).sum(total);
  if (thread() == 0) {
    const double norm = std::sqrt(total);
    const double factor = max_norm / (norm + 1e-6);
    norm_and_factor[0] = norm;
    norm_and_factor[1] = factor < 1 ? factor : 1;
  }
}

inline void clipping(int64_t count, const double* sums, double max_norm, double* norm_and_factor) {
  launch(1, threads_for(count, 1024), BlockTeam::kBytes, current_stream(), find_clipping, count, sums, max_norm,
         norm_and_factor);
}

inline void sums_of_squares(DType dtype, std::span<const SquaresItem> items) {
  dispatch_any_floating("sum_of_squares", dtype, [&]<class S>(S) {
    const DeviceItems<Squares<S>> list(std::vector<Squares<S>>(items.begin(), items.end()));
    const DeviceBuffer<double> sums(list.pieces());
    if (list.pieces() > 0) {
      launch(list.pieces(), kItemThreads, BlockTeam::kBytes, current_stream(), add_squares<S>, list.list(),
             sums.data());
    }
    launch(static_cast<int64_t>(items.size()), kItemThreads, BlockTeam::kBytes, current_stream(), add_pieces<S>,
           list.list(), sums.data());
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const OptimizerKernels NORMA_TABLE(optimizer){.sgd = sgd,
                                                        .adamw = adamw,
                                                        .lamb_direction = lamb_direction,
                                                        .lamb_move = lamb_move,
                                                        .average = average,
                                                        .sums_of_squares = sums_of_squares,
                                                        .clipping = clipping,
                                                        .scale = scale,
                                                        .cut_off = cut_off};

}  // namespace norma::kernels
