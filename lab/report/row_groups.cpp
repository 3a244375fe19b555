#include "lab/report/row_groups.h"

#include <algorithm>

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

}  // namespace norma::lab
