#include "ops/norm/norm_cpu.h"

// Rows: each set is one run of memory (layer norm over the last axes, layer norm 2d in channels_last, group norm and
// instance norm in NCHW). The second pass over a run finds it in the cache.

namespace norma::norm_kernels::cpu {

template <class T>
void rows_forward(const NormProblem& problem, const NormForward<T>& arrays) {
  const AffineShape& affine = problem.affine;
  const int64_t sets = problem.shape.outer;
  const int64_t count = problem.shape.reduce_inner;
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / count);
  const bool with_epilogue = arrays.epilogue.present();
  parallel_for(0, sets, grain, [&](int64_t begin, int64_t end) {
    for (int64_t set = begin; set < end; ++set) {
      const T* x = arrays.x + set * count;
      if (!problem.given_statistics) {
        store_statistics(problem, run_moments(problem.raw_sums(), count, x), arrays, set);
      }
      if (arrays.y == nullptr) {
        continue;
      }
      T* y = arrays.y + set * count;
      const Same<T> mean{arrays.mean[set]};
      const Same<T> rest{arrays.rest[set]};
      const Same<T> rstd{arrays.rstd[set]};
      const int64_t first = affine.outer_period == 1 ? 0 : (set % affine.outer_period) * affine.inner;
      if (!affine.present) {
        apply_run(count, x, y, mean, rest, rstd, Same<T>{0});
      } else if (affine.segment == 1) {
        apply_run(count, x, y, mean, rest, Times{rstd, arrays.weight + first}, arrays.bias + first);
      } else {
        for (int64_t i = 0; i < affine.inner; ++i) {
          const int64_t offset = i * affine.segment;
          apply_run(affine.segment, x + offset, y + offset, mean, rest, Same<T>{rstd.value * arrays.weight[first + i]},
                    Same<T>{arrays.bias[first + i]});
        }
      }
      if (with_epilogue) {
        epilogue_run(arrays.epilogue, set * count, count, y);
      }
    }
  });
}

namespace {

template <class Sum, class T>
void rows_backward_with(const NormProblem& problem, const NormBackward<T>& arrays) {
  const AffineShape& affine = problem.affine;
  const int64_t sets = problem.shape.outer;
  const int64_t count = problem.shape.reduce_inner;
  const T one = 1;
  const bool constant_weight = arrays.weight == nullptr;

  // A block of rows has its own part of the weight gradients.
  const int64_t rows_per_block = ceil_div(sets, kMaxPartials);
  const int64_t blocks = ceil_div(sets, rows_per_block);
  WeightGradients<Sum> gradients(arrays.dweight != nullptr || arrays.dbias != nullptr, blocks, affine.numel());

  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (count * rows_per_block));
  parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t set = begin * rows_per_block; set < std::min(end * rows_per_block, sets); ++set) {
      const T* dy = arrays.dy + set * count;
      const T* x = arrays.x + set * count;
      const T mean = arrays.mean[set];
      const T rest = arrays.rest[set];
      const T rstd = arrays.rstd[set];
      const int64_t first = affine.outer_period == 1 ? 0 : (set % affine.outer_period) * affine.inner;
      const T* weight = constant_weight ? &one : arrays.weight + first;
      Sum* dweight = gradients.wanted() ? gradients.dweight(set / rows_per_block) + first : nullptr;
      Sum* dbias = gradients.wanted() ? gradients.dbias(set / rows_per_block) + first : nullptr;
      const bool along = affine.present && affine.segment == 1;  // weight and bias vary from element to element

      // The sums of g and g * xhat.
      Pair<double> sums;
      if (along) {
        if (arrays.dx != nullptr && !problem.given_statistics) {
          sums = constant_weight ? long_gradient_sums(count, dy, x, mean, rest, rstd, Same<T>{1})
                                 : long_gradient_sums(count, dy, x, mean, rest, rstd, weight);
        }
      } else {
        for (int64_t i = 0; i < affine.inner; ++i) {
          const int64_t offset = i * affine.segment;
          const auto part = long_gradient_sums(affine.segment, dy + offset, x + offset, mean, rest, rstd, Same<T>{1});
          const double w = constant_weight ? 1.0 : static_cast<double>(weight[i]);
          sums.first += w * part.first;
          sums.second += w * part.second;
          if (dweight != nullptr) {
            dweight[i] += static_cast<Sum>(part.second);
            dbias[i] += static_cast<Sum>(part.first);
          }
        }
      }
      if constexpr (std::is_same_v<Sum, T>) {
        if (along && dweight != nullptr) {
          weight_gradient_run(count, dy, x, Same<T>{mean}, Same<T>{rest}, Same<T>{rstd}, dweight, dbias);
        }
      }
      if (arrays.dx == nullptr) {
        continue;
      }
      T* dx = arrays.dx + set * count;
      const InputGradient gradient = input_gradient(problem, rstd, sums.first, sums.second);
      const Pair<T> centre = centre_of(arrays, set);
      const bool given = problem.given_statistics;
      const Same<T> scale{rstd};
      const Same<T> by_xhat{static_cast<T>(gradient.by_xhat)};
      const Same<T> shift{static_cast<T>(gradient.shift)};
      if (along && !constant_weight) {
        input_gradient_run(given, count, dy, x, dx, Same<T>{centre.first}, Same<T>{centre.second}, scale,
                           Times{scale, weight}, by_xhat, shift);
      } else if (constant_weight) {
        input_gradient_run(given, count, dy, x, dx, Same<T>{centre.first}, Same<T>{centre.second}, scale, scale,
                           by_xhat, shift);
      } else {
        for (int64_t i = 0; i < affine.inner; ++i) {
          const int64_t offset = i * affine.segment;
          input_gradient_run(given, affine.segment, dy + offset, x + offset, dx + offset, Same<T>{centre.first},
                             Same<T>{centre.second}, scale, Same<T>{rstd * weight[i]}, by_xhat, shift);
        }
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

}  // namespace

template <class T>
void rows_backward(const NormProblem& problem, const NormBackward<T>& arrays) {
  if (problem.affine.present && problem.affine.segment == 1) {
    rows_backward_with<T>(problem, arrays);
  } else {
    rows_backward_with<double>(problem, arrays);
  }
}

template void rows_forward(const NormProblem&, const NormForward<float>&);
template void rows_forward(const NormProblem&, const NormForward<double>&);
template void rows_backward(const NormProblem&, const NormBackward<float>&);
template void rows_backward(const NormProblem&, const NormBackward<double>&);

}  // namespace norma::norm_kernels::cpu
