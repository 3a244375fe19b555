#include "ops/norm/spec.h"

#include "core/error.h"

namespace norma {

std::string_view to_string(Statistics statistics) {
  switch (statistics) {
    case Statistics::stable: return "stable";
    case Statistics::welford: return "welford";
    case Statistics::two_pass: return "two_pass";
    case Statistics::compensated: return "compensated";
    case Statistics::sum_of_squares: return "sum_of_squares";
  }
  return "?";
}

const std::vector<Statistics>& all_statistics() {
  static const std::vector<Statistics> all = {Statistics::stable, Statistics::welford, Statistics::two_pass,
                                              Statistics::compensated, Statistics::sum_of_squares};
  return all;
}

Statistics statistics_from_string(std::string_view name) {
  for (const Statistics statistics : all_statistics()) {
    if (to_string(statistics) == name) {
      return statistics;
    }
  }
  fail("norm", "statistics: expected stable, welford, two_pass, compensated or sum_of_squares, got {}", name);
}

}  // namespace norma
