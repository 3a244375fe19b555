#include "ops/pointwise/cuda/unary_backward_dispatch.h"
