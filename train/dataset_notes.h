#pragma once

#include "data/dataset.h"
#include "train/checkpoint.h"

#include <string>
#include <vector>

namespace norma::train {

/// The key in Checkpoint::options for the names of the classes.
inline constexpr const char* kClassNamesKey = "class_names";

/// The names of a dataset's classes as text for a checkpoint. Throws Error for names that are not UTF-8.
std::string class_names_text(const data::DatasetInfo& dataset);

/// The key in Checkpoint::options for what is subtracted from images, and what they are divided by.
inline constexpr const char* kNormalizationKey = "normalization";

/// {"mean": [0.5, …], "std": […]} of the three channels of a network's images, values scaled to [0, 1].
std::string normalization_text(const data::DatasetInfo& dataset);
/// That text in a checkpoint; "" if it has none (earlier versions). Throws Error for another one.
std::string normalization_of(const Checkpoint& checkpoint);

/// The names of the classes that a checkpoint was trained on; empty if it has none (earlier versions). Throws Error for
/// another text than that of class_names_text().
std::vector<std::string> class_names_of(const Checkpoint& checkpoint);

/// The differences between a dataset's classes and those of training in words; "" for none, or if the classes of
/// training are unknown (empty).
std::string class_difference(const std::vector<std::string>& of_training, const data::DatasetInfo& dataset);

/// "no test images of 1 of 3 classes: bee", from DatasetInfo::empty_classes of the test images; "" for none.
std::string empty_classes_text(const data::DatasetInfo& test);

/// "2 images could not be decoded, and the next ones took their place: …", from Dataset::skipped(); "" for none.
std::string skipped_text(const data::Dataset& dataset);

}  // namespace norma::train
