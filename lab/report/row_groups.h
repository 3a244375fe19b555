#pragma once

#include "lab/report/report.h"

#include <optional>
#include <vector>

namespace norma::lab {

/// The rows of one comparison_group().
using GroupRows = std::vector<Row>;

/// Groups in the order of their first rows.
std::vector<GroupRows> by_group(const std::vector<Row>& rows);

/// Rows of which a seed is finished.
int64_t finished_rows(const GroupRows& rows);

/// How far seeds of one norm lie apart, and from which difference on the accuracies of two norms differ.
struct SeedSpread {
  double deviation;
  int64_t freedom;   ///< degrees of freedom of the deviation
  double threshold;  ///< of each norm beside batch norm, all of them together wrong in 5 of 100 cases

  /// Half the interval that holds the mean of so many seeds in 95 of 100 cases.
  [[nodiscard]] double half_interval(int64_t seeds) const;
};

/// Nothing where no norm had two seeds, and where all agree: then nobody knows how far others would not.
std::optional<SeedSpread> seed_spread(const GroupRows& rows);

}  // namespace norma::lab
