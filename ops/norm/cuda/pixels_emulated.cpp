#include "ops/norm/cuda/pixels_dispatch.h"
