#pragma once

#include "lab/audit/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace norma::lab::audit {

/// Collects errors.
class Tally {
 public:
  void add(double value, long double truth, long double unit) {
    if (!std::isfinite(truth)) {
      const bool same = std::isnan(truth) ? std::isnan(value) : static_cast<long double>(value) == truth;
      wrong_ += same ? 0 : 1;
      return;
    }
    ++count_;
    if (!std::isfinite(value)) {
      ++wrong_;
      worst_ = sum_ = std::numeric_limits<double>::infinity();
      return;
    }
    const auto error = static_cast<double>(std::abs(static_cast<long double>(value) - truth) / unit);
    worst_ = std::max(worst_, error);
    sum_ += error;
  }
  void add(const Tally& other) {
    worst_ = std::max(worst_, other.worst_);
    sum_ += other.sum_;
    count_ += other.count_;
    wrong_ += other.wrong_;
  }
  [[nodiscard]] Errors errors() const { return {worst_, count_ > 0 ? sum_ / static_cast<double>(count_) : 0}; }
  [[nodiscard]] int64_t wrong() const { return wrong_; }

 private:
  double worst_ = 0;
  double sum_ = 0;
  int64_t count_ = 0;
  int64_t wrong_ = 0;
};

}  // namespace norma::lab::audit
