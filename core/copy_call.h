#pragma once

#include "core/dtype.h"
#include "core/sizes.h"

#include <cstdint>

namespace norma {

/// OpWork::call of a "copy" (op_profile.h): how the elements lay before and after.
struct CopyCall {
  Sizes sizes;   ///< of the written elements
  Strides from;  ///< 0 along axes of size 1 that were broadcast
  Strides to;
  DType from_dtype = DType::float32;
  DType to_dtype = DType::float32;
  /// The value of next_node_number() at the copy: in a forward pass, the number of the copying op if it was recorded.
  uint64_t node = 0;
};

}  // namespace norma
