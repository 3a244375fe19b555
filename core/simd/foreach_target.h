// Includes the file HWY_TARGET_INCLUDE, which includes this one, once more for every target but the last. No guard:
// each kernel file does so.

#include "core/simd/targets.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>
