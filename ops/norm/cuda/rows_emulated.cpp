#include "ops/norm/cuda/rows_dispatch.h"
