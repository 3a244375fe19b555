#include "lab/statistics/mcnemar.h"

#include "base/error.h"
#include "lab/statistics/distributions.h"

#include <algorithm>
#include <cstddef>

namespace norma::lab {

Mcnemar mcnemar(const train::ImageBits& first, const train::ImageBits& second) {
  check(first.size() == second.size(), "mcnemar", "second: expected bits of {} images, as first has, got {}",
        first.size(), second.size());
  Mcnemar result;
  for (size_t i = 0; i < first.size(); ++i) {
    result.only_first += first[i] && !second[i] ? 1 : 0;
    result.only_second += second[i] && !first[i] ? 1 : 0;
  }
  const int64_t divided = result.only_first + result.only_second;
  if (divided > 0) {
    result.chance = std::min(1.0, 2 * heads_at_most(divided, std::min(result.only_first, result.only_second)));
  }
  return result;
}

Interval interval_of(const Mcnemar& test, int64_t images, double chance) {
  const int64_t divided = test.only_first + test.only_second;
  if (divided == 0) {
    return {};
  }
  const auto [low, high] = heads_interval(divided, test.only_first, chance);
  const double points = 100 * static_cast<double>(divided) / static_cast<double>(images);
  return {.low = (2 * low - 1) * points, .high = (2 * high - 1) * points};
}

}  // namespace norma::lab
