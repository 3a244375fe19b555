#pragma once

#include "data/image_file.h"

#include <cstdint>
#include <span>

namespace norma::data {

struct ContactSheetOptions {
  int64_t columns = 0;     ///< 0: about as many as rows
  int64_t gap = 2;         ///< white pixels around each image
  int64_t least_side = 0;  ///< smaller images are enlarged by a whole factor until a side has at least this many pixels
};

/// Puts images of one size side by side on white, row by row. The result has 3 channels; a grey image is repeated in
/// each. Throws Error for no images, images of different sizes, negative numbers, and more than 2^27 pixels.
Image contact_sheet(std::span<const Image> images, const ContactSheetOptions& options = {});

}  // namespace norma::data
