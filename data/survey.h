#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::data {

/// What the images of a dataset are, as far as they were looked at.
struct Survey {
  int64_t looked_at = 0;
  std::vector<std::string> faults;  ///< why an image cannot be loaded, one text each, in the dataset's order
  /// Of each channel over all pixels of the others, with values scaled to [0, 1]; empty where there are none.
  std::vector<double> mean;
  std::vector<double> std;
};

/// Loads images, `most` of them evenly spread over a dataset that has more, with all threads. Throws OutOfMemory; what
/// else load() throws is among the faults.
Survey survey(const Dataset& dataset, int64_t most);

}  // namespace norma::data
