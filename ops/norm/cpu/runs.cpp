#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/runs.cpp"
#include "core/simd/foreach_target.h"

#include "ops/norm/cpu/runs.h"

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

template <class S, class T = compute_t<S>>
class RunsForward {
 public:
  RunsForward(const NormProblem& problem, const NormArrays<S>& arrays, const Runs& runs, Scratch& scratch)
      : problem_(problem), arrays_(arrays), runs_(runs), out_(streams(problem, sizeof(S))) {
    if (arrays.activation != Activation::identity || arrays.residual != nullptr) {
      z_ = scratch.take<T>(std::min(kPiece, runs.length));
    }
    in_strips_ = makes_strips<T>(runs.length) && arrays.bits == nullptr &&
                 (arrays.activation == Activation::identity || arrays.activation == Activation::relu);
    for (T** of_runs : {&mean_, &mean_low_, &scale_, &shift_}) {
      *of_runs = in_strips_ ? scratch.take<T>(runs.most_in_strip(sizeof(S))) : nullptr;
    }
  }

  void tile(const Runs::Outer& outer, int64_t first, int64_t last) const {
    if (!problem_.fixed_stats) {
      statistics(outer, first, last);
    }
    if (arrays_.y != nullptr && in_strips_) {
      runs_.for_each_strip_from_the_end(
          first, last, sizeof(S), [&](int64_t k, int64_t r, int64_t count) { apply_to_strip(outer, k, r, count); });
    } else if (arrays_.y != nullptr) {
      runs_.for_each_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r) { apply(outer, k, r); });
    }
  }

 private:
  void statistics(const Runs::Outer& outer, int64_t first, int64_t last) const {
    const bool raw = problem_.raw_sums();
    const int64_t sets = last - first;
    T pivot[kMaxSets];
    double sum[kMaxSets];
    double squares[kMaxSets];
    for (int64_t i = 0; i < sets; ++i) {
      pivot[i] = raw ? T(0) : mean_of_first(runs_.length, arrays_.x + runs_.offset(outer, first + i, 0));
    }
    const auto add_up = [&] {
      if (runs_.set_by_set) {  // the runs of a set join into one
        for (int64_t i = 0; i < sets; ++i) {
          const Pair<double> of_set =
              shifted_sums(runs_.runs * runs_.length, arrays_.x + runs_.offset(outer, first + i, 0), pivot[i]);
          sum[i] = of_set.first;
          squares[i] = of_set.second;
        }
        return;
      }
      std::fill_n(sum, sets, 0.0);
      std::fill_n(squares, sets, 0.0);
      runs_.for_each(first, last, [&](int64_t k, int64_t r) {
        const int64_t i = k - first;
        const Pair<double> of_run = shifted_sums(runs_.length, arrays_.x + runs_.offset(outer, k, r), pivot[i]);
        sum[i] += of_run.first;
        squares[i] += of_run.second;
      });
    };
    add_up();
    const auto count = static_cast<double>(problem_.shape.set_size());
    if (!raw && move_far_pivots(count, sets, pivot, sum, squares) > 0) [[unlikely]] {
      add_up();
    }
    store_sets(problem_, arrays_, outer.set + first, sets, pivot, sum, squares);
  }

  void apply(const Runs::Outer& outer, int64_t k, int64_t r) const {
    const int64_t set = outer.set + k;
    const bool affine = problem_.affine.present;
    const int64_t weight = runs_.weight(outer, k, r);
    const Same<T> mean{arrays_.mean[set]};
    const Same<T> mean_low{arrays_.mean_low[set]};
    const Same<T> scale{affine ? arrays_.rstd[set] * arrays_.weight[weight] : arrays_.rstd[set]};
    const Same<T> shift{affine ? arrays_.bias[weight] : T(0)};
    const int64_t offset = runs_.offset(outer, k, r);
    if (z_ == nullptr) {
      apply_run(runs_.length, arrays_.x + offset, arrays_.y + offset, mean, mean_low, scale, shift, out_);
      return;
    }
    for (int64_t begin = 0; begin < runs_.length; begin += kPiece) {
      const int64_t count = std::min(kPiece, runs_.length - begin);
      const int64_t at = offset + begin;
      activate_run(arrays_.activation, count, arrays_.x + at,
                   arrays_.residual == nullptr ? nullptr : arrays_.residual + at, arrays_.y + at,
                   arrays_.bits == nullptr ? nullptr : arrays_.bits + at / 8, z_, mean, mean_low, scale, shift, out_);
    }
  }

  void apply_to_strip(const Runs::Outer& outer, int64_t first, int64_t first_run, int64_t count) const {
    const bool affine = problem_.affine.present;
    runs_.for_each_in_strip(first, first_run, count, [&](int64_t k, int64_t r, int64_t i) {
      const int64_t set = outer.set + k;
      const int64_t weight = runs_.weight(outer, k, r);
      mean_[i] = arrays_.mean[set];
      mean_low_[i] = arrays_.mean_low[set];
      scale_[i] = affine ? arrays_.rstd[set] * arrays_.weight[weight] : arrays_.rstd[set];
      shift_[i] = affine ? arrays_.bias[weight] : T(0);
    });
    const int64_t at = runs_.offset(outer, first, first_run);
    apply_strip(count, runs_.length, arrays_.x + at, arrays_.residual == nullptr ? nullptr : arrays_.residual + at,
                arrays_.activation == Activation::relu, arrays_.y + at,
                StripConstants<T>{mean_, mean_low_, scale_, shift_}, out_);
  }

  const NormProblem& problem_;
  const NormArrays<S>& arrays_;
  const Runs& runs_;
  StreamingStore out_;
  T* z_ = nullptr;
  bool in_strips_;
  T* mean_;  ///< constants of the runs of a strip
  T* mean_low_;
  T* scale_;
  T* shift_;
};

}  // namespace

template <class S>
void runs_forward_of(const NormProblem& problem, const NormArrays<S>& arrays) {
  const Runs runs(problem);
  const int64_t per_tile = sets_per_tile(runs, sizeof(S));
  const int64_t tiles = ceil_div(runs.kept, per_tile);
  const int64_t tasks = runs.outer * tiles;
  const int64_t task_elements = std::max<int64_t>(1, problem.shape.numel() / tasks);
  parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const RunsForward<S> forward(problem, arrays, runs, scratch);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % tiles * per_tile;
      forward.tile(runs.at(task / tiles), first, std::min(first + per_tile, runs.kept));
    }
  });
}

void runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  dispatch_any_floating("normalize", dtype,
                        [&](auto s) HWY_ATTR { runs_forward_of(problem, NormArrays<decltype(s)>(problem, arrays)); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(runs_forward);
void runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NORMA_SIMD_BEST(runs_forward)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif
