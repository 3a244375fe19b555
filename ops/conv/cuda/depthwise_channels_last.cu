#include "ops/conv/cuda/depthwise_channels_last_dispatch.h"
