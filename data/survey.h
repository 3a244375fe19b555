#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::data {

/// The properties of a dataset's images, as far as they were loaded.
struct Survey {
  int64_t looked_at = 0;
  std::vector<std::string> faults;  ///< why an image could not be loaded, one text each, in the dataset's order
  /// For each channel over all pixels of the good images, with values scaled to [0, 1]; empty if there are none.
  std::vector<double> mean;
  std::vector<double> std;
};

/// Loads images with all threads; of a larger dataset only `most`, spread evenly over it. Throws OutOfMemory; other
/// errors of load() are among the faults.
Survey survey(const Dataset& dataset, int64_t most);

}  // namespace norma::data
