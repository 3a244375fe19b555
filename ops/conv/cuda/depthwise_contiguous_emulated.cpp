#include "ops/conv/cuda/depthwise_contiguous_dispatch.h"
