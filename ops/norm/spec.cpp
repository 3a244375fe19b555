#include "ops/norm/spec.h"

#include "core/error.h"

namespace norma {

std::string_view to_string(Statistics statistics) {
  switch (statistics) {
    case Statistics::stable: return "stable";
    case Statistics::sum_of_squares: return "sum_of_squares";
  }
  return "?";
}

Statistics statistics_from_string(std::string_view name) {
  for (const Statistics statistics : {Statistics::stable, Statistics::sum_of_squares}) {
    if (to_string(statistics) == name) {
      return statistics;
    }
  }
  fail("norm", "statistics: expected stable or sum_of_squares, got {}", name);
}

}  // namespace norma
