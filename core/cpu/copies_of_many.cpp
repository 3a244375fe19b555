#include "core/cpu/tensor_kernels.h"
#include "core/half.h"
#include "core/parallel.h"

namespace norma::kernels::cpu {

namespace {

template <size_t N>
StridedLoop<N> dense_loop(int64_t count) {
  StridedLoop<N> loop;
  loop.sizes = {count};
  loop.strides.fill(Strides{1});
  return loop;
}

}  // namespace

void copy_all(DType to_dtype, DType from_dtype, const double* factor, std::span<const CopyItem> items) {
  if (factor == nullptr) {
    for (const CopyItem& item : items) {
      copy(dense_loop<2>(item.count), to_dtype, item.to, from_dtype, item.from);
    }
    return;
  }
  dispatch_any_floating("copy_all", to_dtype, [&]<class To>(To) {
    dispatch_any_floating("copy_all", from_dtype, [&]<class From>(From) {
      using T = compute_t<To>;
      const auto by = static_cast<T>(*factor);
      for (const CopyItem& item : items) {
        To* const to = static_cast<To*>(item.to);
        const From* const from = static_cast<const From*>(item.from);
        parallel_for(0, item.count, kPointwiseGrain, [=](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            assign(to[i], static_cast<T>(static_cast<compute_t<From>>(from[i])) * by);
          }
        });
      }
    });
  });
}

void add_all(DType dtype, std::span<const CopyItem> items) {
  for (const CopyItem& item : items) {
    add(dense_loop<3>(item.count), dtype, item.to, item.to, item.from);
  }
}

}  // namespace norma::kernels::cpu
