#pragma once

#include "core/by_device.h"
#include "core/dtype.h"

#include <cstdint>
#include <functional>

namespace norma::kernels {

/// Some queries of some heads: `batch` matrices of (rows, keys) scores, whose rows lie `row_stride` apart without gaps
/// between the matrices. Scores, the mask and the stats are of compute_dtype(dtype).
struct AttentionTile {
  DType dtype = DType::float32;  ///< of what is multiplied: q, k, v, dy, p and dz
  int64_t batch = 1, rows = 0, keys = 0, row_stride = 0;
  int64_t first_query = 0;  ///< the number of the first row's query
  double scale = 1;
  bool causal = false;         ///< query i sees the keys 0 … i alone
  const void* mask = nullptr;  ///< numbers that are added, keys adjacent; or null
  int64_t mask_batch = 0, mask_row = 0;
  void* stats = nullptr;  ///< two numbers for each row
  int64_t stats_batch = 0;

  /// The number of keys that a row sees.
  [[nodiscard]] constexpr int64_t seen(int64_t row) const {
    return causal && first_query + row + 1 < keys ? first_query + row + 1 : keys;
  }
};

// With z = scale · score + mask over the keys that a row sees:
//
//   stats = (max, 1 / sum(exp(z - max))),  p = exp(z - max) / sum(exp(z - max))
//
// and p = 0 for other keys. A row that sees no key, or all whose z are -infinity, has stats (0, 0), and so p = 0.
struct AttentionKernels {
  /// The bytes that the scores of a tile should take at most.
  int64_t (*tile_bytes)();
  /// True iff one tile has many heads: a library multiplies them in one call. False: tasks run on several threads.
  bool batched;
  /// Calls run(task, scratch) for all tasks, with scratch memory of the device that tasks at the same time do not
  /// share.
  void (*for_each_task)(int64_t tasks, int64_t scratch_bytes,
                        const std::function<void(int64_t task, void* scratch)>& run);
  /// Writes p, which lies like the scores, and the stats. In float32 and float64, p is the scores' memory; else the
  /// scores are overwritten.
  void (*softmax)(const AttentionTile& tile, void* scores, void* p);
  /// Writes p by the stats, and scale · dz, where dz = p · (dp - sum(p · dp)) and dp are the dscores. p and dz are the
  /// memory of scores and dscores in float32 and float64; else both are overwritten. dmask, unless null, gets dz in
  /// place of each number of the mask: its matrices are (rows, keys) without gaps in a row, dmask_batch apart.
  void (*softmax_backward)(const AttentionTile& tile, void* scores, void* dscores, void* p, void* dz, void* dmask,
                           int64_t dmask_batch);
};

extern const AttentionKernels attention_cpu, attention_cuda, attention_emulated;
extern const ByDevice<AttentionKernels> attention_kernels;

}  // namespace norma::kernels
