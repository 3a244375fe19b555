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
  double threshold;  ///< of each norm beside batch norm; all tests of the comparison together wrong in 5 of 100 cases

  /// Half the interval that holds the mean of so many seeds in 95 of 100 cases.
  [[nodiscard]] double half_interval(int64_t seeds) const;
};

/// Of one group, in a comparison with so many tests of accuracies. Nothing where no norm had two seeds, and where all
/// agree: then nobody knows how far others would not.
std::optional<SeedSpread> seed_spread(const GroupRows& rows, int64_t tests);

// What is said of a comparison is wrong in 5 of 100 comparisons at most, however many norms and groups it has: each
// test may err in as small a part of these 5 as there are tests (Bonferroni).

/// Norms beside batch norm in all groups; twice as many where seeds are compared in pairs too.
int64_t accuracy_tests(const std::vector<Row>& rows);
/// Whether the accuracy of a row is another one than batch norm's, by the spread of all seeds or seed by seed.
bool accuracy_differs(const Row& row, const Row& batch, const std::optional<SeedSpread>& spread);

/// Norms whose tax was measured. Learning rates share theirs.
int64_t tax_tests(const std::vector<Row>& rows);
/// Whether the rounds are enough to find a tax among so many.
bool tax_can_be_found(const Row& row, int64_t tests);
/// Whether the tax of a row is not 0.
bool tax_is_found(const Row& row, int64_t tests);

}  // namespace norma::lab
