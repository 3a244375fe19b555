#include "ops/pointwise/cuda/binary_dispatch.h"
