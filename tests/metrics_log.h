#pragma once

#include <string>

namespace norma::test {

/// The text of a metrics.csv without its column of times, which no two runs share.
inline std::string without_times(const std::string& log) {
  constexpr int kTimes = 5;  // images_per_second
  std::string kept;
  int column = 0;
  for (const char c : log) {
    column = c == '\n' ? 0 : column + (c == ',' ? 1 : 0);
    if (column != kTimes) {
      kept += c;
    }
  }
  return kept;
}

}  // namespace norma::test
