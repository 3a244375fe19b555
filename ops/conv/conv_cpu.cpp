#include "core/dtype.h"
#include "core/parallel.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"
#include "ops/matmul/kernels.h"

namespace norma::kernels {

namespace {

template <class T>
void sum_planes(const Conv2dCase& conv, const T* dy, T* db) {
  const int64_t plane = conv.oh * conv.ow;
  parallel_for(0, conv.o, /* grain= */ 1, [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o) {
      double total = 0;
      for (int64_t n = 0; n < conv.n; ++n) {
        const T* values = dy + (n * conv.o + o) * plane;
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < plane; ++i) {
          total += static_cast<double>(static_cast<compute_t<T>>(values[i]));
        }
      }
      assign(db[o], static_cast<compute_t<T>>(total));
    }
  });
}

void bias_gradient(const Conv2dCase& conv, const void* dy, void* db) {
  if (conv.channels_last) {
    matmul_cpu.column_sum(conv.dtype, conv.n * conv.oh * conv.ow, conv.o, /* stride= */ conv.o, dy, db);
    return;
  }
  dispatch_any_floating("conv2d", conv.dtype,
                        [&]<class T>(T) { sum_planes(conv, static_cast<const T*>(dy), static_cast<T*>(db)); });
}

Implementations<Conv2dImplementation>& implementations() {
  static Implementations<Conv2dImplementation> list(
      "conv2d", "NORMA_CONV",
      {&conv2d_depthwise, conv2d_onednn, &conv2d_eigen, &conv2d_winograd_4x4, &conv2d_winograd_2x2, &conv2d_reference},
      conv2d_through_float, conv2d_modes());
  return list;
}

const Conv2dImplementation& choose(const Conv2dCase& conv, Conv2dPass pass) {
  if (implementations().forced() == nullptr && conv2d_mode() == Conv2dMode::fast) {
    if (const Conv2dImplementation* const found = fastest_winograd(conv, pass); found != nullptr) {
      return *found;
    }
  }
  return implementations().choose(conv, pass);
}

}  // namespace

constinit const ConvKernels conv_cpu{
    .choose = choose, .bias_gradient = bias_gradient, .implementations = implementations};

}  // namespace norma::kernels
