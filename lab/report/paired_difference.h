#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace norma::lab {

/// How far two things lie apart that were measured in pairs.
struct PairedDifference {
  double mean = 0;
  double standard_error = 0;  ///< of the mean
  double chance = 1;          ///< that differences around 0 give a mean as far from it (p): Student's t, two-sided
  int64_t pairs = 0;
};

/// Of two pairs or more. None of fewer, and of differences that are all the same and not 0: so coarse a measure does
/// not show how far others would lie apart.
std::optional<PairedDifference> paired_difference(const std::vector<double>& differences);

/// Holm (1979): makes the chances of tests that are looked at together such that one of them below 0.05 is wrong in 5
/// of 100 cases at most. In the same order; none is above 1.
std::vector<double> holm(const std::vector<double>& chances);

}  // namespace norma::lab
