#pragma once

#include "ops/conv/kernels.h"

// A 1x1 convolution of NHWC images is a matrix product over the pixels that it reads. oneDNN does the product as fast
// as the convolution or faster (by 1.3 to 1.6 times on small maps). If a stride leaves pixels out, the others are
// copied together first. That is still faster, and avoids a fault of oneDNN's strided 1x1 kernel.

namespace norma::kernels::pixel_product {

/// True iff the convolution is such a product, NHWC with one group, a 1x1 kernel and no padding, and is faster so: in
/// float32, and in bfloat16 with AVX512_BF16 or AMX.
bool serves(const Conv2dCase& conv);

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage* keep);
/// See Conv2dImplementation::forward_act.
bool forward_act(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                 const Epilogue& epilogue, Storage* keep);
void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx);
void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight);

}  // namespace norma::kernels::pixel_product
