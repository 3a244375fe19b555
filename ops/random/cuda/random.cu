#include "core/cuda/flat_loop.h"
#include "core/memory_format.h"
#include "core/philox.h"
#include "core/strided_loop.h"
#include "ops/random/kernels.h"

namespace norma::kernels::NORMA_BACKEND {

/// The number of words that one counter of Philox gives.
inline constexpr int kWordsOfCounter = 4;
inline constexpr int kDropoutThreads = 256;

/// DropoutMask as kernels take it.
struct DropoutDraw {
  uint64_t seed;
  uint64_t first;
  uint64_t threshold;  ///< up to 2^32: then nothing is kept
  const uint64_t* origin;

  explicit DropoutDraw(const DropoutMask& mask)
      : seed(mask.seed), first(mask.first), threshold(static_cast<uint64_t>(mask.rate * 0x1p32)), origin(mask.origin) {}

  [[nodiscard]] NORMA_DEVICE uint64_t begin() const { return origin == nullptr ? first : first + *origin; }
};

/// y = x * scale where kept. The third operand of the loop is a counter: its offset is the element's row-major number.
template <class S, class T>
NORMA_KERNEL void drop_elements(FlatLoop<3> loop, S* y, const S* x, DropoutDraw draw, T scale) {
  const uint64_t begin = draw.begin();
  for (int64_t i = global_thread(); i < loop.count; i += global_threads()) {
    int64_t at[3];
    loop.offsets(i, at);
    const auto number = static_cast<uint64_t>(at[2]);
    const auto words = philox(draw.seed, begin + number / kWordsOfCounter);
    uint32_t word = words[0];  // not words[number % 4]: registers have no index
    NORMA_UNROLL
    for (unsigned k = 1; k < kWordsOfCounter; ++k) {
      word = number % kWordsOfCounter == k ? words[k] : word;
    }
    const bool kept = word >= draw.threshold;
    y[at[0]] = to_element<S>(kept ? to_number(x[at[1]]) * scale : T(0));
  }
}

/// As drop_elements(), for dense memory in row-major order: a thread takes the elements of one counter.
template <class S, class T>
NORMA_KERNEL void drop_dense(int64_t count, S* y, const S* x, DropoutDraw draw, T scale) {
  const uint64_t first_counter = draw.begin();
  for (int64_t counter = global_thread(); counter * kWordsOfCounter < count; counter += global_threads()) {
    const auto words = philox(draw.seed, first_counter + static_cast<uint64_t>(counter));
    const int64_t begin = counter * kWordsOfCounter;
    if (begin + kWordsOfCounter <= count) {
      T numbers[kWordsOfCounter];
      load<S, kWordsOfCounter>(x + begin, numbers);
      NORMA_UNROLL
      for (int i = 0; i < kWordsOfCounter; ++i) {
        numbers[i] = words[i] >= draw.threshold ? numbers[i] * scale : T(0);
      }
      store<S, kWordsOfCounter>(y + begin, numbers);
    } else {
      for (int i = 0; begin + i < count; ++i) {
        y[begin + i] = to_element<S>(words[i] >= draw.threshold ? to_number(x[begin + i]) * scale : T(0));
      }
    }
  }
}

void dropout(DType dtype, const Sizes& sizes, void* y, const Strides& y_strides, const void* x,
             const Strides& x_strides, const DropoutMask& mask) {
  const auto loop = make_strided_loop<3>(sizes, {y_strides, x_strides, contiguous_strides(sizes)});
  const int64_t count = loop.numel();
  if (count == 0) {
    return;
  }
  dispatch_any_floating("dropout", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    const T scale = static_cast<T>(mask.scale());
    const auto addresses = reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(x);
    const bool dense = is_dense(loop) && addresses % alignof(Vector<S, kWordsOfCounter>) == 0;
    const int64_t steps = dense ? ceil_div(count, kWordsOfCounter) : count;
    const int64_t blocks = blocks_for(steps, kDropoutThreads);
    const int threads = threads_for(steps, kDropoutThreads);
    if (dense) {
      launch(blocks, threads, 0, current_stream(), drop_dense<S, T>, count, static_cast<S*>(y),
             static_cast<const S*>(x), DropoutDraw(mask), scale);
    } else {
      launch(blocks, threads, 0, current_stream(), drop_elements<S, T>, FlatLoop<3>(loop), static_cast<S*>(y),
             static_cast<const S*>(x), DropoutDraw(mask), scale);
    }
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const RandomKernels NORMA_TABLE(random){.dropout = dropout};

}  // namespace norma::kernels
