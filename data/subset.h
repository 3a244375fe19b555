#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace norma::data {

/// `size` images of a dataset, chosen by chance but always the same ones: a larger subset contains a smaller one. They
/// stand in the order of the dataset. Mean and standard deviation stay those of all images; a class may be left without
/// images, which `empty_classes` does not show. Of an endless dataset it takes images of one epoch. Throws Error unless
/// 0 < size <= the number of images.
std::shared_ptr<const Dataset> random_subset(std::shared_ptr<const Dataset> dataset, int64_t size);

/// The images of some classes, which get the numbers 0, 1, … in this order. They stand in the order of the dataset.
/// Mean and standard deviation stay those of all images. Of an endless dataset it takes images of one epoch. Throws
/// Error unless there are two classes or more, each once and of the dataset, and at least one image of them.
std::shared_ptr<const Dataset> class_subset(const std::shared_ptr<const Dataset>& dataset,
                                            const std::vector<int64_t>& classes);

}  // namespace norma::data
