#include "ops/norm/cuda/columns_dispatch.h"
