#pragma once

#include "data/dataset.h"

#include <memory>

namespace norma::data {

/// "shapes": an endless set of generated colour images for machines without any file. Each shows one of ten shapes at a
/// random place, size, angle and colour before a noisy background. Image `i` of a split depends on the seed and i
/// only; train and test images come from separate random streams.
/// Throws Error unless image_size is at least 8 and size at least 0.
std::shared_ptr<const Dataset> make_shapes(const DatasetOptions& options);

}  // namespace norma::data
