#pragma once

#include "data/dataset.h"
#include "data/image_file.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace norma::data {

/// The properties of a dataset's images, as far as they were loaded.
struct Survey {
  int64_t looked_at = 0;            ///< images that were loaded, or could not be
  int64_t turned = 0;               ///< images that EXIF says to turn, and that load() has not turned
  std::vector<std::string> faults;  ///< why an image could not be loaded, one text each, in the dataset's order
  /// For each channel over all pixels of the good images, with values scaled to [0, 1]; empty if there are none.
  std::vector<double> mean;
  std::vector<double> std;
};

/// Loads images with all threads; of a larger dataset only `most`, spread evenly over it. Throws OutOfMemory; other
/// errors of load() are among the faults.
Survey survey(const Dataset& dataset, int64_t most);

struct ContactSheetOptions {
  int64_t columns = 0;     ///< 0: about as many as rows
  int64_t gap = 2;         ///< white pixels around each image
  int64_t least_side = 0;  ///< images are enlarged by a whole factor until the shorter side has this many pixels
};

/// Puts images of one size side by side on white, row by row. The result has 3 channels; a grey image is repeated in
/// each. Throws Error for no images, images of different sizes, negative numbers, and more than 2^27 pixels.
Image contact_sheet(std::span<const Image> images, const ContactSheetOptions& options = {});

}  // namespace norma::data
