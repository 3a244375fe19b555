#include "ops/conv/kernels.h"

namespace norma::kernels {

constinit const Conv2dImplementation* const conv2d_onednn = nullptr;

}  // namespace norma::kernels
