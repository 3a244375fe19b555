#pragma once

#include "core/cuda/flat_loop.h"
#include "core/cuda/row_teams.h"
#include "ops/loss/kernels.h"

#include <cmath>
#include <limits>

namespace norma::kernels::NORMA_BACKEND {

/// log(sum(exp(x))) = max + rest, rest = log(sum(exp(x - max)))
template <class T>
struct LogSum {
  T max;
  double rest;
};

/// The LogSum of a row. All threads of its team call it.
template <class T, class Team>
NORMA_DEVICE LogSum<T> log_sum_of(int64_t count, const T* x, int64_t step, const Team& team) {
  T max = -std::numeric_limits<T>::infinity();  // NaN is not larger; the sum brings it back
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    const T value = x[i * step];
    max = max < value ? value : max;
  }
  max = static_cast<T>(team.largest(static_cast<double>(max)));
  double sum = 0;
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    sum += static_cast<double>(std::exp(x[i * step] - max));
  }
  return {max, std::log(team.sum(sum))};
}

/// The rows of N tensors, and the step from one element of a row to the next in each.
template <int N>
struct SoftmaxRows {
  FlatLoop<N> rows;
  int64_t length;
  int64_t steps[N];
};

template <class T, bool by_block>
NORMA_KERNEL void softmax_rows(SoftmaxRows<2> of, int lanes, bool logarithm, const T* x, T* y) {
  for_each_row<by_block>(of.rows.count, lanes, [&](const auto& team, int64_t row, bool there) {
    int64_t at[2];
    of.rows.offsets(row, at);
    const T* from = x + at[0];
    T* to = y + at[1];
    const int64_t count = there ? of.length : 0;
    const auto [max, rest] = log_sum_of(count, from, of.steps[0], team);
    const T rounded_rest = static_cast<T>(rest);
    const T factor = static_cast<T>(std::exp(-rest));
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T below = from[i * of.steps[0]] - max;
      to[i * of.steps[1]] = logarithm ? below - rounded_rest : std::exp(below) * factor;
    }
  });
}

// softmax:      dx = y · (dy - sum(dy · y))
// log_softmax:  dx = dy - exp(y) · sum(dy)
template <class T, bool by_block>
NORMA_KERNEL void softmax_gradient_rows(SoftmaxRows<3> of, int lanes, bool logarithm, const T* y, const T* dy, T* dx) {
  for_each_row<by_block>(of.rows.count, lanes, [&](const auto& team, int64_t row, bool there) {
    int64_t at[3];
    of.rows.offsets(row, at);
    const T* value = y + at[0];
    const T* gradient = dy + at[1];
    T* to = dx + at[2];
    const int64_t count = there ? of.length : 0;
    double total = 0;
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T of_dy = gradient[i * of.steps[1]];
      total += static_cast<double>(logarithm ? of_dy : of_dy * value[i * of.steps[0]]);
    }
    const T sum = static_cast<T>(team.sum(total));
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T of_y = value[i * of.steps[0]];
      const T of_dy = gradient[i * of.steps[1]];
      to[i * of.steps[2]] = logarithm ? of_dy - std::exp(of_y) * sum : of_y * (of_dy - sum);
    }
  });
}

template <int N>
SoftmaxRows<N> rows_of(const SoftmaxShape& shape, const StridedLoop<N>& loop) {
  SoftmaxRows<N> rows{.rows = FlatLoop<N>(loop), .length = shape.length, .steps = {}};
  std::copy_n(shape.steps, N, rows.steps);
  return rows;
}

template <int N>
RowTeams teams_of(const SoftmaxShape& shape, const StridedLoop<N>& loop) {
  return teams_of_rows(loop.numel(), shape.length, /* side_by_side= */ loop.strides[0].back() < shape.steps[0]);
}

inline void softmax(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* x, void* y) {
  const auto loop = make_strided_loop<2>(shape.sizes, {shape.strides[0], shape.strides[1]});
  dispatch_floating("softmax", dtype, [&](auto zero) {
    using T = decltype(zero);
    with_row_teams(teams_of<2>(shape, loop), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), softmax_rows<T, by_block>,
             rows_of<2>(shape, loop), teams.lanes, logarithm, static_cast<const T*>(x), static_cast<T*>(y));
    });
  });
}

inline void softmax_backward(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* y, const void* dy,
                             void* dx) {
  const auto loop = make_strided_loop<3>(shape.sizes, {shape.strides[0], shape.strides[1], shape.strides[2]});
  dispatch_floating("softmax", dtype, [&](auto zero) {
    using T = decltype(zero);
    with_row_teams(teams_of<3>(shape, loop), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), softmax_gradient_rows<T, by_block>,
             rows_of<3>(shape, loop), teams.lanes, logarithm, static_cast<const T*>(y), static_cast<const T*>(dy),
             static_cast<T*>(dx));
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
