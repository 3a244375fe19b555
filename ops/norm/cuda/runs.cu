#include "ops/norm/cuda/runs_dispatch.h"
