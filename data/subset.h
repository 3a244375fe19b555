#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <memory>

namespace norma::data {

/// `size` images of a dataset, chosen by chance but always the same ones: a larger subset contains a smaller one. They
/// stand in the order of the dataset. Mean and standard deviation stay those of all images; a class may be left without
/// images, which `empty_classes` does not show. Of an endless dataset it takes images of one epoch. Throws Error unless
/// 0 < size <= the number of images.
std::shared_ptr<const Dataset> random_subset(std::shared_ptr<const Dataset> dataset, int64_t size);

}  // namespace norma::data
