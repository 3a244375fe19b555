#pragma once

#include "ops/norm/cuda/columns.h"

namespace norma::kernels::NORMA_BACKEND {

/// What a thread knows of a column in backward.
template <class T>
struct ColumnConstants {
  T mean;
  T mean_low;
  T rstd;
  T weight;
  T bias;
};

template <class S, class T = compute_t<S>>
NORMA_DEVICE ColumnConstants<T> column_constants(const NormProblem& problem, const BackwardArrays<S>& arrays,
                                                 int64_t outer, int64_t column) {
  const int64_t set = set_of_column(problem.shape, outer, column);
  const int64_t weight = problem.affine.present ? weight_of_column(problem, outer, column) : 0;
  return {arrays.mean[set], arrays.mean_low[set], arrays.rstd[set],
          arrays.weight == nullptr ? T(1) : arrays.weight[weight], arrays.bias == nullptr ? T(0) : arrays.bias[weight]};
}

/// dz of the vector at `at`, whose x is given.
template <class S, int width, class T = compute_t<S>>
NORMA_DEVICE void load_dz(const BackwardArrays<S>& arrays, int64_t at, const ColumnConstants<T> (&columns)[width],
                          const T (&x)[width], T (&dz)[width]) {
  load<S, width>(arrays.dy + at, dz);
  if (arrays.bits != nullptr) {
    const unsigned bits = arrays.bits[at / 8] >> (at % 8);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      dz[j] = ((bits >> j) & 1U) != 0 ? dz[j] : T(0);
    }
  } else if (arrays.activation != Activation::identity) {
    T residual[width] = {};
    if (arrays.residual != nullptr) {
      load<S, width>(arrays.residual + at, residual);
    }
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      const ColumnConstants<T>& c = columns[j];
      const Normaliser<T> normalise{c.mean, c.mean_low, c.rstd * c.weight, c.bias};
      dz[j] = through_activation(arrays.activation, normalise(x[j]) + residual[j], dz[j]);
    }
  }
}

/// The sums of dz and dz · xhat over the rows of each chunk.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    add_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays, double* sums) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  T first[kWidth] = {};
  T second[kWidth] = {};
  if (place.there) {
    ColumnConstants<T> columns[kWidth];
    for (int j = 0; j < kWidth; ++j) {
      columns[j] = column_constants(problem, arrays, place.outer, place.column + j);
    }
    for (int64_t row = place.first_row + place.row_of_thread; row < place.last_row; row += place.rows_at_once) {
      const int64_t at = place.base + row * plan.columns + place.column;
      T x[kWidth];
      load<S, kWidth>(arrays.x + at, x);
      T dz[kWidth];
      load_dz(arrays, at, columns, x, dz);
      NORMA_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const T xhat = ((x[j] - columns[j].mean) - columns[j].mean_low) * columns[j].rstd;
        first[j] += dz[j];
        second[j] = fused_multiply_add(dz[j], xhat, second[j]);
      }
    }
  }
  write_column_sums(plan, place.outer, place.chunk, place.column, place.there, first, second, sums);
}

/// The constants of each set's dx from the sums of its columns' chunks, by a warp.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void finish_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays,
                                          const double* sums, InputGradient<T>* gradients) {
  const NormShape& shape = problem.shape;
  const LaneTeam team;
  const int64_t warps = global_threads() / kWarp;
  for (int64_t set = global_thread() / kWarp; set < shape.sets(); set += warps) {
    const int64_t outer = set / shape.kept;
    const int64_t first_column = (set - outer * shape.kept) * shape.reduce_inner;
    double sum = 0;
    double sum_xhat = 0;
    for (int64_t i = lane(); i < shape.reduce_inner * plan.chunks; i += kWarp) {
      const int64_t chunk = i / shape.reduce_inner;
      const int64_t column = first_column + (i - chunk * shape.reduce_inner);
      const double weight =
          arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[weight_of_column(problem, outer, column)]);
      const double* of_chunk = sums + (outer * plan.chunks + chunk) * 2 * plan.columns;
      sum = fused_multiply_add(weight, of_chunk[column], sum);
      sum_xhat = fused_multiply_add(weight, of_chunk[plan.columns + column], sum_xhat);
    }
    team.sum(sum, sum_xhat);
    if (lane() == 0) {
      gradients[set] = input_gradient(problem, arrays.rstd[set], sum, sum_xhat);
    }
  }
}

/// dweight and dbias of each column: its sums over all outer indices and chunks, by a warp. Either may be null.
template <class T>
NORMA_KERNEL void finish_column_weights(int64_t columns, int64_t parts, const double* sums, T* dweight, T* dbias) {
  const LaneTeam team;
  const int64_t warps = global_threads() / kWarp;
  for (int64_t column = global_thread() / kWarp; column < columns; column += warps) {
    double of_bias = 0;
    double of_weight = 0;
    for (int64_t part = lane(); part < parts; part += kWarp) {
      of_bias += sums[2 * part * columns + column];
      of_weight += sums[(2 * part + 1) * columns + column];
    }
    team.sum(of_bias, of_weight);
    if (lane() == 0 && dweight != nullptr) {
      dweight[column] = static_cast<T>(of_weight);
    }
    if (lane() == 0 && dbias != nullptr) {
      dbias[column] = static_cast<T>(of_bias);
    }
  }
}

/// dx and dresidual of the rows of each chunk.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    write_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays,
                           const InputGradient<T>* gradients) {
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  if (!place.there) {
    return;
  }
  const bool deviation = arrays.centre != nullptr;
  ColumnConstants<T> columns[kWidth];
  InputGradient<T> of_columns[kWidth] = {};
  T centre[kWidth];
  T centre_low[kWidth];
  for (int j = 0; j < kWidth; ++j) {
    const int64_t set = set_of_column(problem.shape, place.outer, place.column + j);
    columns[j] = column_constants(problem, arrays, place.outer, place.column + j);
    centre[j] = deviation ? arrays.centre[set] : columns[j].mean;
    centre_low[j] = deviation ? arrays.centre_low[set] : columns[j].mean_low;
    if (!problem.fixed_stats && arrays.dx != nullptr) {
      of_columns[j] = gradients[set];
    }
  }
  for (int64_t row = place.first_row + place.row_of_thread; row < place.last_row; row += place.rows_at_once) {
    const int64_t at = place.base + row * plan.columns + place.column;
    T x[kWidth];
    load<S, kWidth>(arrays.x + at, x);
    T dz[kWidth];
    load_dz(arrays, at, columns, x, dz);
    if (arrays.dresidual != nullptr) {
      store<S, kWidth>(arrays.dresidual + at, dz);
    }
    if (arrays.dx == nullptr) {
      continue;
    }
    NORMA_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const T by_dz = columns[j].rstd * columns[j].weight;
      const T xhat = ((x[j] - centre[j]) - centre_low[j]) * columns[j].rstd;
      dz[j] =
          problem.fixed_stats
              ? dz[j] * by_dz
              : fused_multiply_add(dz[j], by_dz, fused_multiply_add(xhat, of_columns[j].by_xhat, of_columns[j].shift));
    }
    store<S, kWidth>(arrays.dx + at, dz);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
