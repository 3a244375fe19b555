#include "lab/audit/set_index.h"

namespace norma::lab::audit {

SetIndex::SetIndex(const Sizes& sizes, const NormSpec& spec) {
  const auto rank = static_cast<size_t>(sizes.size());
  set_of_axis_.resize(rank);
  weight_of_axis_.resize(rank);
  for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
    const int64_t size = sizes[axis];
    // Neighbours along this axis that share a set.
    const int64_t share = !spec.reduce.contains(axis) ? 1 : spec.groups > 1 && axis == 1 ? size / spec.groups : size;
    const bool weighted = spec.affine.contains(axis);
    for (int64_t i = 0; i < size; ++i) {
      set_of_axis_[static_cast<size_t>(axis)].push_back(static_cast<size_t>(i / share * sets_));
      weight_of_axis_[static_cast<size_t>(axis)].push_back(static_cast<size_t>(weighted ? i * weights_ : 0));
    }
    sets_ *= size / share;
    weights_ *= weighted ? size : 1;
    numel_ *= size;
  }
}

}  // namespace norma::lab::audit
