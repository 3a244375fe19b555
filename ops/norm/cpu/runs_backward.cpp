#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/runs_backward.cpp"
#include "core/simd/foreach_target.h"

#include "ops/norm/cpu/runs.h"
#include "ops/norm/cpu/weight_gradients.h"

#include <array>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

template <class S, class T = compute_t<S>>
class RunsBackward {
 public:
  RunsBackward(const NormProblem& problem, const NormArrays<S>& arrays, const Runs& runs, Scratch& scratch)
      : problem_(problem), arrays_(arrays), runs_(runs), of_dx_(problem), out_(streams(problem, sizeof(S))) {
    if (computes_dz_apart(arrays)) {
      dz_ = scratch.take<T>(std::min(kPiece, runs.length));
    }
    weights_wanted_ = arrays.dweight != nullptr || arrays.dbias != nullptr;
    in_strips_ = makes_strips<T>(runs.length) && dz_ == nullptr && arrays.dx != nullptr;
    for (T*& of_runs : strip_) {
      of_runs = in_strips_ ? scratch.take<T>(runs.most_in_strip(sizeof(S))) : nullptr;
    }
  }

  /// dweight and dbias begin with the gradients of the weights, or are null.
  void tile(const Runs::Outer& outer, int64_t first, int64_t last, double* dweight, double* dbias) const {
    const int64_t sets = last - first;
    double sum[kMaxSets];
    double sum_xhat[kMaxSets];
    std::fill_n(sum, sets, 0.0);
    std::fill_n(sum_xhat, sets, 0.0);
    if (weights_wanted_ || !problem_.fixed_stats) {
      const auto add = [&](int64_t k, int64_t weight, double of_dz, double of_dz_xhat) NORMA_INLINE {
        const double w = arrays_.weight == nullptr ? 1.0 : static_cast<double>(arrays_.weight[weight]);
        sum[k - first] += w * of_dz;
        sum_xhat[k - first] += w * of_dz_xhat;
        if (dweight != nullptr) {
          dweight[weight] += of_dz_xhat;
          dbias[weight] += of_dz;
        }
      };
      if (in_strips_ && runs_.length < kShort<T>) {
        short_sums(outer, first, last, add);
      } else {
        runs_.for_each(first, last, [&](int64_t k, int64_t r) {
          const Pair<double> of_run = sums(outer, k, r);
          add(k, runs_.weight(outer, k, r), of_run.first, of_run.second);
        });
      }
    }
    if (arrays_.dx == nullptr && arrays_.dresidual == nullptr) {
      return;
    }
    if (in_strips_) {
      runs_.for_each_strip_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r, int64_t count) {
        write_strip(outer, k, r, count, first, sum, sum_xhat);
      });
      return;
    }
    runs_.for_each_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r) {
      write(outer, k, r, of_dx_.of<double>(arrays_.rstd[outer.set + k], sum[k - first], sum_xhat[k - first]));
    });
  }

 private:
  /// Computes dz of a piece of a run, where no operand does.
  void stage(int64_t set, int64_t weight, int64_t at, int64_t count, T* dz) const {
    slope_run(arrays_.activation, count, arrays_.x + at, arrays_.residual == nullptr ? nullptr : arrays_.residual + at,
              arrays_.dy + at, dz, Same<T>{arrays_.mean[set]}, Same<T>{arrays_.mean_low[set]},
              Same<T>{scale(set, weight)}, Same<T>{shift(weight)});
  }
  [[nodiscard]] T scale(int64_t set, int64_t weight) const {
    return arrays_.weight == nullptr ? arrays_.rstd[set] : arrays_.rstd[set] * arrays_.weight[weight];
  }
  [[nodiscard]] T shift(int64_t weight) const { return arrays_.bias == nullptr ? T(0) : arrays_.bias[weight]; }

  [[nodiscard]] auto where_positive(int64_t set, int64_t weight, int64_t at) const {
    return WherePositive<S, Same<T>, Same<T>, Same<T>, Same<T>>{arrays_.dy + at,      arrays_.x + at,
                                                                {arrays_.mean[set]},  {arrays_.mean_low[set]},
                                                                {scale(set, weight)}, {shift(weight)}};
  }

  /// Calls f(dz, offset, count) for a run, or for its pieces where they are staged. `dresidual` receives dz, unless it
  /// is null.
  template <class F>
  void for_each_piece(const Runs::Outer& outer, int64_t k, int64_t r, S* dresidual, F&& f) const {
    const int64_t offset = runs_.offset(outer, k, r);
    if (arrays_.activation == Activation::identity) {
      return f(Given<S>{arrays_.dy + offset}, offset, runs_.length);
    }
    if (arrays_.bits != nullptr) {
      const WhereBits<S> dz{arrays_.dy + offset, arrays_.bits, offset};
      if (dresidual == nullptr) {
        return f(dz, offset, runs_.length);
      }
      return arrays_.dx == nullptr ? store_gradient_run(runs_.length, dz, dresidual + offset)
                                   : f(AndStored{dz, dresidual + offset}, offset, runs_.length);
    }
    const int64_t set = outer.set + k;
    const int64_t weight = runs_.weight(outer, k, r);
    if (dz_ == nullptr) {
      return f(where_positive(set, weight, offset), offset, runs_.length);
    }
    for (int64_t begin = 0; begin < runs_.length; begin += kPiece) {
      const int64_t count = std::min(kPiece, runs_.length - begin);
      T* dz = dz_;
      if constexpr (std::is_same_v<S, T>) {
        dz = dresidual == nullptr ? dz : dresidual + offset + begin;
      }
      stage(set, weight, offset + begin, count, dz);
      if constexpr (!std::is_same_v<S, T>) {
        if (dresidual != nullptr) {
          store_run(count, dz, dresidual + offset + begin);
        }
      }
      f(Given<T>{dz}, offset + begin, count);
    }
  }

  /// The sums of dz and dz * xhat over a run.
  [[nodiscard]] Pair<double> sums(const Runs::Outer& outer, int64_t k, int64_t r) const {
    const int64_t set = outer.set + k;
    Pair<double> all;
    for_each_piece(outer, k, r, nullptr, [&](auto dz, int64_t offset, int64_t count) {
      const Pair<double> part =
          gradient_sums(count, dz, arrays_.x + offset, arrays_.mean[set], arrays_.mean_low[set], arrays_.rstd[set]);
      all.first += part.first;
      all.second += part.second;
    });
    return all;
  }

  /// Calls add(k, weight, sum of dz, sum of dz * xhat) for runs shorter than kShort, whose dz an operand computes.
  template <class Add>
  void short_sums(const Runs::Outer& outer, int64_t first, int64_t last, Add add) const {
    const auto run = [&](auto dz_of) {
      runs_.for_each(first, last, [&](int64_t k, int64_t r) {
        const int64_t set = outer.set + k;
        const int64_t weight = runs_.weight(outer, k, r);
        const int64_t at = runs_.offset(outer, k, r);
        const GradientTerm term{dz_of(set, weight, at), arrays_.x + at, arrays_.mean[set], arrays_.mean_low[set],
                                arrays_.rstd[set]};
        const Pair<double> of_run = sum_short_run<T>(runs_.length, term);
        add(k, weight, of_run.first, of_run.second);
      });
    };
    if (arrays_.activation == Activation::identity) {
      run([&](int64_t, int64_t, int64_t at) NORMA_INLINE { return Given<S>{arrays_.dy + at}; });
    } else if (arrays_.bits != nullptr) {
      run([&](int64_t, int64_t, int64_t at) NORMA_INLINE { return WhereBits<S>{arrays_.dy + at, arrays_.bits, at}; });
    } else {
      run([&](int64_t set, int64_t weight, int64_t at) NORMA_INLINE { return where_positive(set, weight, at); });
    }
  }

  /// Writes dx and dresidual of a run.
  void write(const Runs::Outer& outer, int64_t k, int64_t r, const InputGradient<double>& gradient) const {
    const int64_t set = outer.set + k;
    const auto [mean, mean_low] = centre_of(arrays_, set);
    const T rstd = arrays_.rstd[set];
    const T w = arrays_.weight == nullptr ? T(1) : arrays_.weight[runs_.weight(outer, k, r)];
    const Same<T> by_dz{rstd * w};
    const Same<T> by_xhat{static_cast<T>(gradient.by_xhat)};
    const Same<T> shift{static_cast<T>(gradient.shift)};
    for_each_piece(outer, k, r, arrays_.dresidual,
                   [&, mean = mean, mean_low = mean_low](auto dz, int64_t offset, int64_t count) {
                     if (arrays_.dx != nullptr) {
                       input_gradient_run(problem_.fixed_stats, count, dz, arrays_.x + offset, arrays_.dx + offset,
                                          Same<T>{mean}, Same<T>{mean_low}, Same<T>{rstd}, by_dz, by_xhat, shift, out_);
                     }
                   });
  }

  /// Writes dx and dresidual of a strip. The sums are those of the sets from `first_sum` on.
  void write_strip(const Runs::Outer& outer, int64_t first, int64_t first_run, int64_t count, int64_t first_sum,
                   const double* sum, const double* sum_xhat) const {
    const auto [centre, centre_low, rstd, by_dz, by_xhat, shift_of_dx, mean, mean_low, bias] = strip_;
    const bool computes_z = arrays_.activation == Activation::relu && arrays_.bits == nullptr;
    int64_t last_k = -1;
    Pair<T> of_set;
    InputGradient<T> gradient{};
    runs_.for_each_in_strip(first, first_run, count, [&](int64_t k, int64_t r, int64_t i) {
      const int64_t set = outer.set + k;
      const int64_t weight = runs_.weight(outer, k, r);
      if (k != last_k) {
        last_k = k;
        of_set = centre_of(arrays_, set);
        gradient = of_dx_.template of<T>(arrays_.rstd[set], sum[k - first_sum], sum_xhat[k - first_sum]);
      }
      centre[i] = of_set.first;
      centre_low[i] = of_set.second;
      rstd[i] = arrays_.rstd[set];
      by_dz[i] = scale(set, weight);
      by_xhat[i] = gradient.by_xhat;
      shift_of_dx[i] = gradient.shift;
      if (computes_z) {
        mean[i] = arrays_.mean[set];
        mean_low[i] = arrays_.mean_low[set];
        bias[i] = shift(weight);
      }
    });
    const int64_t at = runs_.offset(outer, first, first_run);
    const auto run = [&](auto dz_of) {
      input_gradient_strip(
          problem_.fixed_stats, count, runs_.length, dz_of, arrays_.x + at, arrays_.dx + at,
          StripGradientConstants<T>{centre, centre_low, rstd, by_dz, by_xhat, shift_of_dx, mean, mean_low, bias}, out_);
    };
    const S* dy = arrays_.dy + at;
    if (arrays_.activation == Activation::identity) {
      run([=](const auto&) NORMA_INLINE { return Given<S>{dy}; });
    } else if (arrays_.bits == nullptr) {
      run([=, x = arrays_.x + at](const auto& c) NORMA_INLINE {
        return WherePositive<S, Held<T>, Held<T>, Held<T>, Held<T>>{dy, x, c.mean, c.mean_low, c.by_dz, c.bias};
      });
    } else if (arrays_.dresidual == nullptr) {
      run([=, bits = arrays_.bits](const auto&) NORMA_INLINE { return WhereBits<S>{dy, bits, at}; });
    } else {
      run([=, bits = arrays_.bits, dresidual = arrays_.dresidual + at](const auto&) NORMA_INLINE {
        return AndStored{WhereBits<S>{dy, bits, at}, dresidual};
      });
    }
  }

  const NormProblem& problem_;
  const NormArrays<S>& arrays_;
  const Runs& runs_;
  InputGradients of_dx_;
  StreamingStore out_;
  bool weights_wanted_;
  T* dz_ = nullptr;
  bool in_strips_;
  std::array<T*, 9> strip_;  ///< StripGradientConstants of the runs of a strip
};

}  // namespace

template <class S>
void runs_backward_of(const NormProblem& problem, const NormArrays<S>& arrays) {
  const Runs runs(problem);
  const int64_t per_tile = sets_per_tile(runs, 2 * sizeof(S));
  const int64_t tiles = ceil_div(runs.kept, per_tile);

  // Tiles whose weights are theirs alone share a part of the weight gradients; a part serves several outer indices.
  const int64_t weights = problem.affine.numel();
  const int64_t outer_per_part = ceil_div(runs.outer, weights > 4096 ? kMaxPartials / 4 : kMaxPartials);
  const int64_t outer_parts = ceil_div(runs.outer, outer_per_part);
  const int64_t tasks = outer_parts * tiles;
  Scratch shared;
  const WeightGradients gradients(shared, arrays.dweight != nullptr || arrays.dbias != nullptr,
                                  runs.own_weights ? outer_parts : tasks, weights);
  const int64_t task_elements = std::max<int64_t>(1, problem.shape.numel() / tasks);
  parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const RunsBackward<S> backward(problem, arrays, runs, scratch);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer_part = task / tiles;
      const int64_t part = runs.own_weights ? outer_part : task;
      const int64_t first = task % tiles * per_tile;
      for (int64_t outer = outer_part * outer_per_part; outer < std::min((outer_part + 1) * outer_per_part, runs.outer);
           ++outer) {
        backward.tile(runs.at(outer), first, std::min(first + per_tile, runs.kept), gradients.dweight(part),
                      gradients.dbias(part));
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

void runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  dispatch_any_floating("normalize", dtype,
                        [&](auto s) HWY_ATTR { runs_backward_of(problem, NormArrays<decltype(s)>(problem, arrays)); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(runs_backward);
void runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NORMA_SIMD_BEST(runs_backward)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif
