#pragma once

#include <span>

namespace norma::data {

/// Two uniform numbers in [0, 1).
struct UniformPair {
  double first = 0;
  double second = 0;
};

/// Writes the two normal numbers of each pair, box_muller()'s rounded to float: the same bits on every processor.
void normal_pairs(std::span<const UniformPair> pairs, float* to);

}  // namespace norma::data
