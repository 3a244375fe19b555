#pragma once

#include "core/cuda/items.h"
#include "core/cuda/teams.h"
#include "ops/optimizer/kernels.h"

#include <cmath>

// A sum has two stages: the sums of pieces, then the sum of those. The order depends on the count of an item alone.

namespace norma::kernels::NORMA_BACKEND {

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
  dispatch_any_floating("sum_of_squares", dtype, [&](auto zero) {
    using S = decltype(zero);
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
