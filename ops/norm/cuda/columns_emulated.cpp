#include "ops/norm/cuda/columns_backward.h"
