#include "core/cpu/tensor_kernels.h"

#include <algorithm>
#include <numeric>

namespace norma::kernels {

void cpu::fill(const StridedLoop<1>& loop, DType dtype, void* x, double value) {
  dispatch_all(dtype, [&]<class T>(T) {
    auto* data = static_cast<T*>(x);
    const T element = [&] {
      if constexpr (std::is_same_v<T, bool>) {
        return value != 0;
      } else {
        return static_cast<T>(static_cast<compute_t<T>>(value));
      }
    }();
    for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
      T* first = data + offsets[0];
      if (strides[0] == 1) {
        std::fill_n(first, count, element);
      } else {
        for (int64_t i = 0; i < count; ++i) {
          first[i * strides[0]] = element;
        }
      }
    });
  });
}

void cpu::arange(int64_t* x, int64_t count) {
  std::iota(x, x + count, int64_t{0});
}

constinit const TensorKernels tensor_cpu{.copy = cpu::copy,
                                         .add = cpu::add,
                                         .copy_all = cpu::copy_all,
                                         .add_all = cpu::add_all,
                                         .fill = cpu::fill,
                                         .find_not_finite = cpu::find_not_finite,
                                         .arange = cpu::arange,
                                         .uniform = cpu::uniform,
                                         .normal = cpu::normal,
                                         .truncated_normal = cpu::truncated_normal,
                                         .randint = cpu::randint};

}  // namespace norma::kernels
