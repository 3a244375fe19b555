#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/rows.cpp"
#include "core/simd/foreach_target.h"

#include "ops/norm/cpu/loops.h"

// Rows: each set is one run of memory whose weights vary from element to element (layer norm over the last axes, layer
// norm 2d in channels_last). A few rows at a time pass through the L1 cache.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

constexpr int64_t kMaxBatch = 16;
/// Rows whose weight gradients are added up in T before they are moved to double.
constexpr int64_t kRowsInT = 512;

/// Rows worked on together: their constants are computed side by side, and a second pass finds them in L1.
int64_t batch_of(int64_t count, int64_t row_bytes) {
  constexpr int64_t kBytes = 12 * 1024;  // as much again for the next rows, fetched meanwhile, and for the result
  return std::clamp<int64_t>(kBytes / (count * row_bytes) / 4 * 4, 4, kMaxBatch);
}

int64_t weight_of(const AffineShape& affine, int64_t set) {
  return affine.outer_period == 1 ? 0 : (set % affine.outer_period) * affine.inner;
}

}  // namespace

template <class S>
void rows_forward(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  using T = compute_t<S>;
  const int64_t sets = problem.shape.outer;
  const int64_t count = problem.shape.reduce_inner;
  const int64_t batch = batch_of(count, sizeof(S));
  const bool raw = problem.raw_sums();
  const bool plain = arrays.activation == Activation::identity && arrays.residual == nullptr;
  const bool long_rows = batch * count * static_cast<int64_t>(sizeof(S)) > kCacheBytes;  // too long to be fetched
  const int64_t ahead = long_rows ? 0 : batch * count;
  parallel_for(0, ceil_div(sets, batch), ceil_div(kPointwiseGrain, batch * count), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const StreamingStore out(streams(problem, sizeof(S)));
    T* z = plain ? nullptr : scratch.take<T>(count);
    T pivot[kMaxBatch];
    double sum[kMaxBatch];
    double squares[kMaxBatch];
    for (int64_t first = begin * batch; first < std::min(end * batch, sets); first += batch) {
      const int64_t rows = std::min(batch, sets - first);
      const S* x = arrays.x + first * count;
      if (!problem.fixed_stats) {
        const auto add_up = [&] {
          for (int64_t row = 0; row < rows; ++row) {
            const Pair<double> sums = shifted_sums(count, x + row * count, pivot[row]);
            sum[row] = sums.first;
            squares[row] = sums.second;
          }
        };
        for (int64_t row = 0; row < rows; ++row) {
          pivot[row] = raw ? T(0) : mean_of_first(count, x + row * count);
        }
        add_up();
        if (!raw && move_far_pivots(static_cast<double>(count), rows, pivot, sum, squares) > 0) [[unlikely]] {
          add_up();
        }
        store_sets(problem, arrays, first, rows, pivot, sum, squares);
      }
      if (arrays.y == nullptr) {
        continue;
      }
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t set = first + row;
        const int64_t weight = weight_of(problem.affine, set);
        const int64_t offset = set * count;
        const Same<T> mean{arrays.mean[set]};
        const Same<T> mean_low{arrays.mean_low[set]};
        const Times scale{Same<T>{arrays.rstd[set]}, Varying<T>{arrays.weight + weight}};
        const Varying<T> shift{arrays.bias + weight};
        const Fetch<S> next{arrays.x + offset + ahead};
        if (plain) {
          apply_run(count, arrays.x + offset, arrays.y + offset, mean, mean_low, scale, shift, out, next);
        } else {
          activate_run(arrays.activation, count, arrays.x + offset,
                       arrays.residual == nullptr ? nullptr : arrays.residual + offset, arrays.y + offset,
                       arrays.bits == nullptr ? nullptr : arrays.bits + offset / 8, z, mean, mean_low, scale, shift,
                       out, next);
        }
      }
    }
  });
}

namespace {

/// The constants of a row in backward.
template <class T>
struct RowConstants {
  T mean;
  T mean_low;
  T rstd;
  T by_xhat;
  T shift;
};

/// For `rows` rows with the same weights: dx = dz * weight * rstd + xhat * by_xhat + shift (dx may be null),
/// dweight += dz * xhat, dbias += dz.
template <int rows, class D, class S, class T, class Weight>
void gradients_of_rows(int64_t count, const D* dz, const S* x, S* dx, const RowConstants<T>* rows_constants,
                       Weight weight, T* dweight, T* dbias, const StreamingStore& out) {
  RowConstants<T> c[rows];
  std::copy_n(rows_constants, rows, c);
  const auto run = [&](auto with_dx, auto with_weights) {
    for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE {
      Lanes<T> dw = {};
      Lanes<T> db = {};
      const Lanes<T> w = weight.get(i, part);
#pragma GCC unroll 4
      for (int row = 0; row < rows; ++row) {
        const Lanes<T> d = load(dz + row * count + i, part);
        const Lanes<T> xhat =
            difference(x + row * count, i, part, Same<T>{c[row].mean}, Same<T>{c[row].mean_low}) * c[row].rstd;
        dw = multiply_add(d, xhat, dw);
        db += d;
        if constexpr (with_dx) {
          const Lanes<T> of_statistics = multiply_add(xhat, broadcast(c[row].by_xhat), broadcast(c[row].shift));
          out(dx + row * count + i, multiply_add(d, w * c[row].rstd, of_statistics), part);
        }
      }
      if constexpr (with_weights) {
        store(dweight + i, load(dweight + i, part) + dw, part);
        store(dbias + i, load(dbias + i, part) + db, part);
      }
    });
  };
  if (dx != nullptr && dweight != nullptr) {
    run(std::true_type{}, std::true_type{});
  } else if (dx != nullptr) {
    run(std::true_type{}, std::false_type{});
  } else if (dweight != nullptr) {
    run(std::false_type{}, std::true_type{});
  }
}

/// The rows of one part of the weight gradients.
template <class S, class T = compute_t<S>>
class RowsBackward {
 public:
  RowsBackward(const NormProblem& problem, const BackwardArrays<S>& arrays, int64_t batch, Scratch& scratch)
      : problem_(problem),
        arrays_(arrays),
        of_dx_(problem),
        out_(streams(problem, sizeof(S))),
        count_(problem.shape.reduce_inner),
        staged_(arrays.activation != Activation::identity),
        in_place_(std::is_same_v<S, T> && arrays.dresidual != nullptr),
        weights_wanted_(arrays.dweight != nullptr || arrays.dbias != nullptr) {
    if (weights_wanted_) {
      dweight_ = scratch.zeros<T>(problem.affine.numel());
      dbias_ = scratch.zeros<T>(problem.affine.numel());
    }
    if (staged_) {
      dz_ = scratch.take<T>(batch * count_);
    }
  }

  void batch(int64_t first, int64_t rows) {
    if (staged_) {
      T* dz = dz_;
      if constexpr (std::is_same_v<S, T>) {
        dz = in_place_ ? arrays_.dresidual + first * count_ : dz;
      }
      for (int64_t row = 0; row < rows; ++row) {
        stage(first + row, dz + row * count_);
      }
      gradients(first, rows, dz);
    } else {
      gradients(first, rows, arrays_.dy + first * count_);
    }
  }

  /// Adds the sums in T to sums in double, and clears them.
  void move_to_double(double* dweight, double* dbias) {
    for (int64_t i = 0; weights_wanted_ && i < problem_.affine.numel(); ++i) {
      dweight[i] += dweight_[i];
      dbias[i] += dbias_[i];
      dweight_[i] = 0;
      dbias_[i] = 0;
    }
  }

 private:
  /// Computes dz of a row, also into dresidual.
  [[gnu::noinline]] void stage(int64_t set, T* dz) const {
    const int64_t offset = set * count_;
    if (arrays_.bits != nullptr) {
      store_gradient_run(count_, WhereBits<S>{arrays_.dy + offset, arrays_.bits, offset}, dz);
    } else {
      const int64_t weight = weight_of(problem_.affine, set);
      slope_run(arrays_.activation, count_, arrays_.x + offset,
                arrays_.residual == nullptr ? nullptr : arrays_.residual + offset, arrays_.dy + offset, dz,
                Same<T>{arrays_.mean[set]}, Same<T>{arrays_.mean_low[set]},
                Times{Same<T>{arrays_.rstd[set]}, Varying<T>{arrays_.weight + weight}},
                Varying<T>{arrays_.bias + weight});
    }
    if (arrays_.dresidual != nullptr && !in_place_) {
      store_run(count_, dz, arrays_.dresidual + offset);
    }
  }

  template <class D>
  void gradients(int64_t first, int64_t rows, const D* dz) {
    const AffineShape& affine = problem_.affine;
    const S* x = arrays_.x + first * count_;
    S* dx = arrays_.dx == nullptr ? nullptr : arrays_.dx + first * count_;
    RowConstants<T> constants[kMaxBatch];
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t set = first + row;
      RowConstants<T>& c = constants[row];
      c = {arrays_.mean[set], arrays_.mean_low[set], arrays_.rstd[set], 0, 0};
      if (dx == nullptr || problem_.fixed_stats) {
        continue;
      }
      const D* dz_row = dz + row * count_;
      const S* x_row = x + row * count_;
      const Pair<double> sums = gradient_sums(count_, Given<D>{dz_row}, x_row, c.mean, c.mean_low, c.rstd,
                                              Varying<T>{arrays_.weight + weight_of(affine, set)});
      const auto gradient = of_dx_.of<double>(c.mean, c.rstd, sums.first, sums.second);
      c.by_xhat = static_cast<T>(gradient.by_xhat);
      c.shift = static_cast<T>(gradient.shift);
    }
    write(first, rows, dz, constants);
  }

  /// Writes dx and adds to the gradients of the weights.
  template <class D>
  [[gnu::noinline]] void write(int64_t first, int64_t rows, const D* dz, const RowConstants<T>* constants) {
    const AffineShape& affine = problem_.affine;
    const S* x = arrays_.x + first * count_;
    S* dx = arrays_.dx == nullptr ? nullptr : arrays_.dx + first * count_;
    // One loop makes dx and the gradients of the weights, which share xhat = (x - mean) * rstd. With fixed stats dx has
    // none, and takes a loop of its own.
    const bool dx_apart = dx != nullptr && problem_.fixed_stats;
    S* dx_together = dx_apart ? nullptr : dx;
    int64_t row = 0;
    const auto rows_from = [&](auto how_many, int64_t weight) {
      gradients_of_rows<how_many>(count_, dz + row * count_, x + row * count_,
                                  dx_together == nullptr ? nullptr : dx_together + row * count_, constants + row,
                                  Varying<T>{arrays_.weight + weight}, weights_wanted_ ? dweight_ + weight : nullptr,
                                  weights_wanted_ ? dbias_ + weight : nullptr, out_);
      row += how_many;
    };
    if (affine.outer_period == 1) {
      while (row + 4 <= rows) {
        rows_from(std::integral_constant<int, 4>{}, 0);
      }
    }
    while (row < rows) {
      rows_from(std::integral_constant<int, 1>{}, weight_of(affine, first + row));
    }
    for (row = 0; dx_apart && row < rows; ++row) {
      const Times by_dz{Same<T>{constants[row].rstd}, Varying<T>{arrays_.weight + weight_of(affine, first + row)}};
      fixed_gradient_run(count_, Given<D>{dz + row * count_}, dx + row * count_, by_dz, out_);
    }
  }

  const NormProblem& problem_;
  const BackwardArrays<S>& arrays_;
  InputGradients of_dx_;
  StreamingStore out_;
  int64_t count_;
  bool staged_;
  bool in_place_;  ///< dz is made in the memory of dresidual
  bool weights_wanted_;
  T* dweight_ = nullptr;
  T* dbias_ = nullptr;
  T* dz_ = nullptr;
};

}  // namespace

template <class S>
void rows_backward(const NormProblem& problem, const BackwardArrays<S>& without_defaults) {
  using T = compute_t<S>;
  Scratch shared;
  BackwardArrays<S> arrays = without_defaults;  // an absent weight becomes 1, an absent bias 0: one loop for all
  if (arrays.weight == nullptr) {
    T* ones = shared.take<T>(problem.affine.numel());
    std::fill_n(ones, problem.affine.numel(), T(1));
    arrays.weight = ones;
  }
  if (arrays.bias == nullptr && arrays.activation != Activation::identity) {
    arrays.bias = shared.zeros<T>(problem.affine.numel());
  }
  const int64_t sets = problem.shape.outer;
  const int64_t count = problem.shape.reduce_inner;
  const int64_t batch = batch_of(count, 2 * sizeof(S));

  // A block of rows has its own part of the weight gradients; together the parts are small beside x.
  const int64_t wanted_blocks = std::clamp<int64_t>(sets / 64, 8, kMaxPartials);
  const int64_t rows_per_block = ceil_div(ceil_div(sets, wanted_blocks), batch) * batch;
  const int64_t blocks = ceil_div(sets, rows_per_block);
  const WeightGradients gradients(shared, arrays.dweight != nullptr || arrays.dbias != nullptr, blocks,
                                  problem.affine.numel());

  parallel_for(0, blocks, ceil_div(kPointwiseGrain, count * rows_per_block), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    RowsBackward<S> rows(problem, arrays, batch, scratch);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min((block + 1) * rows_per_block, sets);
      int64_t in_t = 0;
      for (int64_t first = block * rows_per_block; first < last; first += batch) {
        rows.batch(first, std::min(batch, last - first));
        in_t += batch;
        if (in_t >= kRowsInT || first + batch >= last) {
          rows.move_to_double(gradients.dweight(block), gradients.dbias(block));
          in_t = 0;
        }
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

WalkKernels rows_walk() {
  return walk_of([](const auto& problem, const auto& arrays) HWY_ATTR { rows_forward(problem, arrays); },
                 [](const auto& problem, const auto& arrays) HWY_ATTR { rows_backward(problem, arrays); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(rows_walk);
WalkKernels rows_walk() {
  return NORMA_SIMD_BEST(rows_walk)();
}

}  // namespace norma::kernels::cpu
#endif
