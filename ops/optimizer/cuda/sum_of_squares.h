#pragma once

#include "core/cuda/teams.h"
#include "ops/optimizer/cuda/elements.h"
#include "ops/optimizer/kernels.h"

#include <cmath>

// Two stages: the sums of pieces, then the sum of those. The order depends on the count alone.

namespace norma::kernels::NORMA_BACKEND {

/// The number of elements of a piece.
inline constexpr int64_t kPiece = 4096;

/// sums[b] = the sum of the squares of piece b, with a block for each piece.
template <class S>
NORMA_KERNEL void add_squares(int64_t count, const S* x, double* sums) {
  const int64_t first = block() * kPiece;
  const int64_t last = first + kPiece < count ? first + kPiece : count;
  double sum = 0;
  for (int64_t i = first + thread(); i < last; i += threads()) {
    const auto value = static_cast<double>(to_number(x[i]));
    sum += value * value;
  }
  sum = BlockTeam(shared_memory<double>()).sum(sum);
  if (thread() == 0) {
    sums[block()] = sum;
  }
}

/// *sum = the sum of all pieces, by one block.
NORMA_KERNEL void add_pieces(int64_t count, const double* pieces, double* sum) {
  double total = 0;
  for (int64_t i = thread(); i < count; i += threads()) {
    total += pieces[i];
  }
  total = BlockTeam(shared_memory<double>()).sum(total);
  if (thread() == 0) {
    *sum = total;
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

inline void sum_of_squares(DType dtype, int64_t count, const void* x, double* sum) {
  const int64_t pieces = count == 0 ? 1 : ceil_div(count, kPiece);
  const DeviceBuffer<double> sums(pieces == 1 ? 0 : pieces);
  dispatch_any_floating("sum_of_squares", dtype, [&](auto zero) {
    using S = decltype(zero);
    launch(pieces, threads_for(count, 256), BlockTeam::kBytes, current_stream(), add_squares<S>, count,
           static_cast<const S*>(x), pieces == 1 ? sum : sums.data());
  });
  if (pieces > 1) {
    launch(1, threads_for(pieces, 1024), BlockTeam::kBytes, current_stream(), add_pieces, pieces, sums.data(), sum);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
