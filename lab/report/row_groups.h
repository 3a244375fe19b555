#pragma once

#include "lab/report/report.h"

#include <vector>

namespace norma::lab {

/// The rows of one comparison_group().
using GroupRows = std::vector<Row>;

/// Groups in the order of their first rows.
std::vector<GroupRows> by_group(const std::vector<Row>& rows);

/// Rows of which a seed is finished.
int64_t finished_rows(const GroupRows& rows);

}  // namespace norma::lab
