#include "lab/report/paired_difference.h"

#include "lab/report/student_t.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace norma::lab {

std::optional<PairedDifference> paired_difference(const std::vector<double>& differences) {
  if (differences.size() < 2) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(differences.size());
  PairedDifference result{.pairs = static_cast<int64_t>(differences.size())};
  result.mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  double squares = 0;
  for (const double difference : differences) {
    squares += (difference - result.mean) * (difference - result.mean);
  }
  result.standard_error = std::sqrt(squares / (count - 1) / count);
  if (result.standard_error <= 1e-12 * std::abs(result.mean)) {  // but for rounding, all are the same
    return result.mean == 0 ? std::optional(result) : std::nullopt;
  }
  result.chance = student_t_chance(result.pairs - 1, result.mean / result.standard_error);
  return result;
}

std::vector<double> holm(const std::vector<double>& chances) {
  std::vector<size_t> order(chances.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return chances[a] < chances[b]; });
  std::vector<double> adjusted(chances.size());
  double most = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    most = std::max(most, std::min(1.0, static_cast<double>(order.size() - i) * chances[order[i]]));
    adjusted[order[i]] = most;
  }
  return adjusted;
}

}  // namespace norma::lab
