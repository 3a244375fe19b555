#pragma once

#include "core/sizes.h"
#include "ops/norm/spec.h"

#include <cstdint>
#include <vector>

namespace norma::lab::audit {

/// Which set of a norm each element belongs to, and which weight: both numbered in row-major order.
class SetIndex {
 public:
  SetIndex(const Sizes& sizes, const NormSpec& spec);

  [[nodiscard]] int64_t sets() const { return sets_; }
  [[nodiscard]] int64_t weights() const { return weights_; }
  [[nodiscard]] int64_t numel() const { return numel_; }
  /// Runs along the last axis.
  [[nodiscard]] int64_t rows() const { return numel_ / static_cast<int64_t>(set_of_axis_.back().size()); }

  /// Calls f(element, set, weight), all size_t, for the elements of some rows in row-major order.
  template <class F>
  void for_each(int64_t first_row, int64_t last_row, F&& f) const {
    const std::vector<size_t>& last_sets = set_of_axis_.back();
    const std::vector<size_t>& last_weights = weight_of_axis_.back();
    const size_t length = last_sets.size();
    for (int64_t row = first_row; row < last_row; ++row) {
      size_t set = 0;
      size_t weight = 0;
      auto rest = static_cast<size_t>(row);
      for (size_t axis = set_of_axis_.size() - 1; axis-- > 0;) {
        const size_t i = rest % set_of_axis_[axis].size();
        rest /= set_of_axis_[axis].size();
        set += set_of_axis_[axis][i];
        weight += weight_of_axis_[axis][i];
      }
      const size_t first = static_cast<size_t>(row) * length;
      for (size_t i = 0; i < length; ++i) {
        f(first + i, set + last_sets[i], weight + last_weights[i]);
      }
    }
  }

 private:
  // What each index along each axis adds to the number of the set and of the weight.
  std::vector<std::vector<size_t>> set_of_axis_;
  std::vector<std::vector<size_t>> weight_of_axis_;
  int64_t sets_ = 1;
  int64_t weights_ = 1;
  int64_t numel_ = 1;
};

}  // namespace norma::lab::audit
