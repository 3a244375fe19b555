#include "lab/report/row_groups.h"

#include "lab/report/student_t.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::lab {

namespace {

constexpr double kErrors = 0.05;

}  // namespace

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
  return student_t(freedom, kErrors) * deviation / std::sqrt(static_cast<double>(seeds));
}

std::optional<SeedSpread> seed_spread(const GroupRows& rows, int64_t tests) {
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
  // The difference of two means of n seeds has the standard deviation s * sqrt(2 / n).
  const double deviation = std::sqrt(variance / static_cast<double>(freedom));
  const double level = kErrors / static_cast<double>(std::max<int64_t>(tests, 1));
  return SeedSpread{.deviation = deviation,
                    .freedom = freedom,
                    .threshold = student_t(freedom, level) * deviation * std::sqrt(2 / static_cast<double>(fewest))};
}

int64_t accuracy_tests(const std::vector<Row>& rows) {
  int64_t tests = 0;
  for (const GroupRows& group : by_group(rows)) {
    tests += std::max<int64_t>(finished_rows(group) - 1, 0);
  }
  const bool in_pairs =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.accuracy_difference.has_value(); });
  return in_pairs ? 2 * tests : tests;
}

bool accuracy_differs(const Row& row, const Row& batch, const std::optional<SeedSpread>& spread) {
  if (row.finished == 0 || row.norm == batch.norm) {
    return false;
  }
  const bool by_spread = spread && std::abs(row.accuracy.mean - batch.accuracy.mean) > spread->threshold;
  // The chance is that of all pairs together already.
  return by_spread || (row.accuracy_difference && 2 * row.accuracy_difference->chance < kErrors);
}

int64_t tax_tests(const std::vector<Row>& rows) {
  std::vector<Settings> known;
  for (const Row& row : rows) {
    Settings key = timing_group(row);
    key.norm = row.norm;
    if (row.tax && std::find(known.begin(), known.end(), key) == known.end()) {
      known.push_back(key);
    }
  }
  return static_cast<int64_t>(known.size());
}

bool tax_can_be_found(const Row& row, int64_t tests) {
  return row.tax && std::ldexp(2.0, -static_cast<int>(row.tax->count)) * static_cast<double>(tests) < kErrors;
}

bool tax_is_found(const Row& row, int64_t tests) {
  return row.tax && row.tax->sure && row.tax->chance * static_cast<double>(tests) < kErrors;
}

}  // namespace norma::lab
