#include "core/cuda/number.h"
#include "core/cuda/row_teams.h"
#include "ops/attention/kernels.h"

#include <cmath>
#include <limits>

// The kernels of attention, and their table.

namespace norma::kernels::NORMA_BACKEND {

/// A row of scores with what belongs to it.
template <class T>
struct AttentionRow {
  T* scores;
  const T* mask;  ///< or null
  T* stats;
  int64_t seen;
  T scale;

  NORMA_DEVICE AttentionRow(const AttentionTile& tile, T* all, int64_t number) {
    const int64_t matrix = quotient(number, tile.rows);
    const int64_t row = number - matrix * tile.rows;
    scores = all + number * tile.row_stride;
    mask = tile.mask == nullptr ? nullptr
                                : static_cast<const T*>(tile.mask) + matrix * tile.mask_batch + row * tile.mask_row;
    stats = static_cast<T*>(tile.stats) + matrix * tile.stats_batch + 2 * row;
    seen = tile.seen(row);
    scale = static_cast<T>(tile.scale);
  }

  /// scale · score + mask
  NORMA_DEVICE T z(int64_t i) const { return mask == nullptr ? scores[i] * scale : scores[i] * scale + mask[i]; }
};

template <class P, bool by_block>
NORMA_KERNEL void attention_softmax(AttentionTile tile, int lanes, compute_t<P>* scores, P* p) {
  using T = compute_t<P>;
  for_each_row<by_block>(tile.batch * tile.rows, lanes, [&](const auto& team, int64_t number, bool there) {
    const AttentionRow<T> row(tile, scores, number);
    const int64_t seen = there ? row.seen : 0;
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    T max = -kInfinity;  // NaN is not larger; the sum brings it back
    for (int64_t i = team.rank(); i < seen; i += team.size()) {
      const T z = row.z(i);
      max = max < z ? z : max;
    }
    max = static_cast<T>(team.largest(static_cast<double>(max)));
    max = max == -kInfinity ? T(0) : max;
    T sum = 0;
    for (int64_t i = team.rank(); i < seen; i += team.size()) {
      const T e = std::exp(row.z(i) - max);
      row.scores[i] = e;
      sum += e;
    }
    sum = team.sum(sum);
    const T factor = sum == T(0) ? T(0) : T(1) / sum;
    for (int64_t i = team.rank(); there && i < tile.keys; i += team.size()) {
      p[number * tile.row_stride + i] = to_element<P>(i < seen ? row.scores[i] * factor : T(0));
    }
    if (there && team.rank() == 0) {
      row.stats[0] = max;
      row.stats[1] = factor;
    }
  });
}

template <class P, bool by_block>
NORMA_KERNEL void attention_softmax_backward(AttentionTile tile, int lanes, compute_t<P>* scores, compute_t<P>* dscores,
                                             P* p, P* dz, compute_t<P>* dmask, int64_t dmask_batch) {
  using T = compute_t<P>;
  for_each_row<by_block>(tile.batch * tile.rows, lanes, [&](const auto& team, int64_t number, bool there) {
    const AttentionRow<T> row(tile, scores, number);
    const int64_t seen = there ? row.seen : 0;
    T* const drow = dscores + number * tile.row_stride;
    const int64_t matrix = quotient(number, tile.rows);
    T* const mask_row =
        dmask == nullptr ? nullptr : dmask + matrix * dmask_batch + (number - matrix * tile.rows) * tile.keys;
    const T max = row.stats[0];
    const T factor = row.stats[1];
    T sum = 0;
    for (int64_t i = team.rank(); i < seen; i += team.size()) {
      const T e = std::exp(row.z(i) - max) * factor;
      row.scores[i] = e;
      sum += e * drow[i];
    }
    sum = team.sum(sum);
    for (int64_t i = team.rank(); there && i < tile.keys; i += team.size()) {
      const T dscore = i < seen ? row.scores[i] * (drow[i] - sum) : T(0);
      p[number * tile.row_stride + i] = to_element<P>(i < seen ? row.scores[i] : T(0));
      dz[number * tile.row_stride + i] = to_element<P>(dscore * row.scale);
      if (mask_row != nullptr) {
        mask_row[i] = dscore;
      }
    }
  });
}

inline void softmax(const AttentionTile& tile, void* scores, void* p) {
  const RowTeams plan = teams_of_rows(tile.batch * tile.rows, tile.keys, /* side_by_side= */ false);
  dispatch_any_floating("scaled_dot_product_attention", tile.dtype, [&]<class P>(P) {
    with_row_teams(plan, [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), attention_softmax<P, by_block>, tile,
             teams.lanes, static_cast<compute_t<P>*>(scores), static_cast<P*>(p));
    });
  });
}

inline void softmax_backward(const AttentionTile& tile, void* scores, void* dscores, void* p, void* dz, void* dmask,
                             int64_t dmask_batch) {
  const RowTeams plan = teams_of_rows(tile.batch * tile.rows, tile.keys, /* side_by_side= */ false);
  dispatch_any_floating("scaled_dot_product_attention", tile.dtype, [&]<class P>(P) {
    using T = compute_t<P>;
    with_row_teams(plan, [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), attention_softmax_backward<P, by_block>, tile,
             teams.lanes, static_cast<T*>(scores), static_cast<T*>(dscores), static_cast<P*>(p), static_cast<P*>(dz),
             static_cast<T*>(dmask), dmask_batch);
    });
  });
}

/// Enough scores to fill the device.
inline int64_t tile_bytes() {
  return int64_t{processors()} << 20;
}

inline void for_each_task(int64_t tasks, int64_t scratch_bytes,
                          const std::function<void(int64_t task, void* scratch)>& run) {
  const DeviceBuffer<std::byte> scratch(scratch_bytes);
  for (int64_t task = 0; task < tasks; ++task) {
    run(task, scratch.data());
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const AttentionKernels NORMA_TABLE(attention){.tile_bytes = tile_bytes,
                                                        .batched = true,
                                                        .for_each_task = for_each_task,
                                                        .softmax = softmax,
                                                        .softmax_backward = softmax_backward};

}  // namespace norma::kernels
