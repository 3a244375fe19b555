#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/attention_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "ops/attention/kernels.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
namespace {

using namespace simd::HWY_NAMESPACE;

/// z = scale · score + mask
template <class T, class Part>
HWY_INLINE Lanes<T> masked(const T* scores, T scale, const T* mask, int64_t i, Part part) {
  const Lanes<T> scaled = load(scores + i, part) * scale;
  return mask == nullptr ? scaled : scaled + load(mask + i, part);
}

/// e^(z - max), to what the 16 or more bits of P need.
template <class P, class T>
HWY_INLINE Lanes<T> weight(const Lanes<T>& z, T max) {
  if constexpr (std::is_same_v<P, T>) {
    return exp(z - max);
  } else {
    return exp_for_16_bits(z - max);
  }
}

/// Calls f(row of scores, its number in the whole tile, its mask, its stats, the keys it sees) for each row.
template <class T, class F>
void for_each_score_row(const AttentionTile& tile, T* scores, F&& f) {
  for (int64_t b = 0; b < tile.batch; ++b) {
    const T* mask = tile.mask == nullptr ? nullptr : static_cast<const T*>(tile.mask) + b * tile.mask_batch;
    T* stats = static_cast<T*>(tile.stats) + b * tile.stats_batch;
    for (int64_t row = 0; row < tile.rows; ++row) {
      const int64_t number = b * tile.rows + row;
      f(scores + number * tile.row_stride, number, mask == nullptr ? nullptr : mask + row * tile.mask_row,
        stats + 2 * row, tile.seen(row));
    }
  }
}

template <class P>
void attention_rows(const AttentionTile& tile, compute_t<P>* scores, P* p) {
  using T = compute_t<P>;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T scale = static_cast<T>(tile.scale);
  for_each_score_row(tile, scores, [&](T* row, int64_t number, const T* mask, T* stats, int64_t seen) {
    const Lanes<T> least = broadcast(-kInfinity);
    Lanes<T> most = least;
    for_each_lanes<T>(seen, [&](int64_t i, auto part) HWY_ATTR {
      Lanes<T> z = masked(row, scale, mask, i, part);
      if constexpr (std::is_same_v<decltype(part), First>) {
        z = select(first_lanes<T>(part.count), z, least);
      }
      most = select(most < z, z, most);  // NaN is not larger; the sum brings it back
    });
    T lanes[kLanes<T>];
    store(static_cast<T*>(lanes), most, Whole{});
    const T largest = *std::max_element(std::begin(lanes), std::end(lanes));
    const T max = largest == -kInfinity ? T(0) : largest;
    DoubleSum<T> sum;
    for_each_lanes<T>(seen, [&](int64_t i, auto part) HWY_ATTR {
      const Lanes<T> e = weight<P>(masked(row, scale, mask, i, part), max);
      store(row + i, e, part);
      sum.lanes += to_double(keep(e, part));
    });
    const double total = sum.total();
    const T factor = total == 0 ? T(0) : static_cast<T>(1 / total);
    P* const p_row = p + number * tile.row_stride;
    for_each_lanes<T>(seen,
                      [&](int64_t i, auto part) HWY_ATTR { store(p_row + i, load(row + i, part) * factor, part); });
    std::fill(p_row + seen, p_row + tile.keys, P{});
    stats[0] = max;
    stats[1] = factor;
  });
}

template <class P>
void attention_backward_rows(const AttentionTile& tile, compute_t<P>* scores, compute_t<P>* dscores, P* p, P* dz,
                             compute_t<P>* dmask, int64_t dmask_batch) {
  using T = compute_t<P>;
  const T scale = static_cast<T>(tile.scale);
  for_each_score_row(tile, scores, [&](T* row, int64_t number, const T* mask, const T* stats, int64_t seen) {
    const T max = stats[0];
    const T factor = stats[1];
    T* const drow = dscores + number * tile.row_stride;
    DoubleSum<T> sum;
    for_each_lanes<T>(seen, [&](int64_t i, auto part) HWY_ATTR {
      const Lanes<T> e = weight<P>(masked(row, scale, mask, i, part), max) * factor;
      store(row + i, e, part);
      sum.lanes += to_double(keep(e * load(drow + i, part), part));
    });
    const T projection = static_cast<T>(sum.total());
    T* const mask_row =
        dmask == nullptr ? nullptr : dmask + number / tile.rows * dmask_batch + number % tile.rows * tile.keys;
    P* const p_row = p + number * tile.row_stride;
    P* const dz_row = dz + number * tile.row_stride;
    for_each_lanes<T>(seen, [&](int64_t i, auto part) HWY_ATTR {
      const Lanes<T> probability = load(row + i, part);
      const Lanes<T> dscore = probability * (load(drow + i, part) - projection);
      store(dz_row + i, dscore * scale, part);
      if constexpr (!std::is_same_v<P, T>) {
        store(p_row + i, probability, part);
      }
      if (mask_row != nullptr) {
        store(mask_row + i, dscore, part);
      }
    });
    std::fill(p_row + seen, p_row + tile.keys, P{});
    std::fill(dz_row + seen, dz_row + tile.keys, P{});
    if (mask_row != nullptr) {
      std::fill(mask_row + seen, mask_row + tile.keys, T(0));
    }
  });
}

void attention_softmax(const AttentionTile& tile, void* scores, void* p) {
  dispatch_any_floating("scaled_dot_product_attention", tile.dtype, [&]<class P>(P) {
    attention_rows(tile, static_cast<compute_t<P>*>(scores), static_cast<P*>(p));
  });
}

void attention_softmax_backward(const AttentionTile& tile, void* scores, void* dscores, void* p, void* dz, void* dmask,
                                int64_t dmask_batch) {
  dispatch_any_floating("scaled_dot_product_attention", tile.dtype, [&]<class P>(P) {
    using T = compute_t<P>;
    attention_backward_rows(tile, static_cast<T*>(scores), static_cast<T*>(dscores), static_cast<P*>(p),
                            static_cast<P*>(dz), static_cast<T*>(dmask), dmask_batch);
  });
}

}  // namespace
}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

namespace {

/// Two tiles, of scores and of their gradients, stay in a core's second cache.
int64_t tile_bytes() {
  return int64_t{256} << 10;
}

void for_each_task(int64_t tasks, int64_t scratch_bytes, const std::function<void(int64_t task, void* scratch)>& run) {
  parallel_for(0, tasks, /* grain= */ 1, [&](int64_t first, int64_t last) {
    const OneThread one_thread;
    cpu::Scratch scratch;
    void* const memory = scratch.take<std::byte>(scratch_bytes);
    for (int64_t task = first; task < last; ++task) {
      run(task, memory);
    }
  });
}

}  // namespace

constinit const AttentionKernels attention_cpu{.tile_bytes = tile_bytes,
                                               .batched = false,
                                               .for_each_task = for_each_task,
                                               .softmax = NORMA_SIMD_CALL(attention_softmax),
                                               .softmax_backward = NORMA_SIMD_CALL(attention_softmax_backward)};

}  // namespace norma::kernels
#endif
