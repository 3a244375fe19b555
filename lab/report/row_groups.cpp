#include "lab/report/row_groups.h"

#include "lab/report/student_t.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::lab {

std::vector<GroupRows> by_group(const std::vector<Row>& rows) {
  std::vector<GroupRows> groups;
  for (const Row& row : rows) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const GroupRows& group) {
      return comparison_group(group.front()) == comparison_group(row);
    });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(row);
  }
  return groups;
}

int64_t finished_rows(const GroupRows& rows) {
  return std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.finished > 0; });
}

double SeedSpread::half_interval(int64_t seeds) const {
  return student_t(freedom, 0.05) * deviation / std::sqrt(static_cast<double>(seeds));
}

std::optional<SeedSpread> seed_spread(const GroupRows& rows) {
  double variance = 0;  // pooled over the norms
  int64_t freedom = 0;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (const Row& row : rows) {
    if (row.finished > 0) {
      fewest = std::min(fewest, row.finished);
    }
    if (row.accuracy.deviation) {
      variance += static_cast<double>(row.finished - 1) * *row.accuracy.deviation * *row.accuracy.deviation;
      freedom += row.finished - 1;
    }
  }
  if (freedom == 0 || !(variance > 0)) {  // NaN: not known either
    return std::nullopt;
  }
  // The difference of two means of n seeds has the standard deviation s * sqrt(2 / n). Each norm is compared with batch
  // norm, and all these comparisons together may be wrong in 5 of 100 cases (Bonferroni).
  const double deviation = std::sqrt(variance / static_cast<double>(freedom));
  const auto comparisons = static_cast<double>(std::max<int64_t>(finished_rows(rows) - 1, 1));
  return SeedSpread{
      .deviation = deviation,
      .freedom = freedom,
      .threshold = student_t(freedom, 0.05 / comparisons) * deviation * std::sqrt(2 / static_cast<double>(fewest))};
}

}  // namespace norma::lab
