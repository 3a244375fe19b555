#include "ops/pointwise/cuda/unary_dispatch.h"
