#include "core/memory_format.h"
#include "core/random.h"
#include "core/strided_loop.h"
#include "ops/random/kernels.h"

#include <array>

namespace norma::kernels {

namespace {

/// The words of a Philox sequence by number. Neighbours of one counter are drawn once.
class Words {
 public:
  Words(uint64_t seed, uint64_t first) : seed_(seed), first_(first) {}

  uint32_t operator()(uint64_t i) {
    const uint64_t counter = first_ + i / 4;
    if (!drawn_ || counter != counter_) {
      words_ = philox(seed_, counter);
      counter_ = counter;
      drawn_ = true;
    }
    return words_[i % 4];
  }

 private:
  uint64_t seed_;
  uint64_t first_;
  uint64_t counter_ = 0;
  bool drawn_ = false;
  std::array<uint32_t, 4> words_{};
};

void dropout(DType dtype, const Sizes& sizes, void* y, const Strides& y_strides, const void* x,
             const Strides& x_strides, const DropoutMask& mask) {
  dispatch_any_floating("dropout", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    const T scale = static_cast<T>(mask.scale());
    const auto threshold = static_cast<uint64_t>(mask.rate * 0x1p32);  // up to 2^32: nothing is kept
    // The third operand is a counter: its offset is the row-major number of the element.
    const auto loop = make_strided_loop<3>(sizes, {y_strides, x_strides, contiguous_strides(sizes)});
    for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
      S* out = static_cast<S*>(y) + offsets[0];
      const S* in = static_cast<const S*>(x) + offsets[1];
      Words words(mask.seed, mask.first + (mask.origin == nullptr ? 0 : *mask.origin));
      for (int64_t i = 0; i < count; ++i) {
        const bool kept = words(static_cast<uint64_t>(offsets[2] + i * strides[2])) >= threshold;
        assign(out[i * strides[0]], kept ? static_cast<T>(in[i * strides[1]]) * scale : T(0));
      }
    });
  });
}

}  // namespace

constinit const RandomKernels random_cpu{.dropout = dropout};

}  // namespace norma::kernels
