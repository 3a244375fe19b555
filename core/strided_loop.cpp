#include "core/strided_loop.h"

namespace norma {

Strides broadcast_strides(const Sizes& sizes, const Strides& strides, const Sizes& target) {
  Strides result = Strides::filled(target.size(), 0);
  const int64_t added = target.size() - sizes.size();
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] != 1 || target[axis + added] == 1) {
      result[axis + added] = strides[axis];
    }
  }
  return result;
}

}  // namespace norma
