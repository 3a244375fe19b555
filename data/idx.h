#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace norma::data {

/// The bytes of an IDX file (the format of MNIST: http://yann.lecun.com/exdb/mnist) with its sizes.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> values;  ///< row-major
};

/// Reads a file of bytes with `rank` axes, plain or packed with gzip. Throws Error that names the file when it is
/// missing, truncated, damaged, of another type or rank, or goes on after the last value.
IdxArray read_idx(const std::filesystem::path& file, int64_t rank);

/// The images and labels of one split of a folder: files whose names end in train-images-idx3-ubyte,
/// train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (or test-… for t10k-…, .idx for -idx), with
/// or without .gz.
struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

/// Empty paths for files that are not there. Throws Error when several files fit.
IdxFiles find_idx_files(const std::filesystem::path& folder, Split split);

/// Grey images in memory. Throws Error when the numbers of images and labels differ, or a label is not below the number
/// of class names. `info` needs name, class_names, mean and std.
std::shared_ptr<const Dataset> load_idx_dataset(const IdxFiles& files, DatasetInfo info);

/// "idx": any folder with such files. Classes are numbered up to the largest label of both splits; mean and standard
/// deviation are those of the training images, also for the test split.
std::shared_ptr<const Dataset> make_idx_folder(const DatasetOptions& options);

/// "fashion_mnist": 60,000 + 10,000 grey images of 28 x 28 pixels (Xiao, Rasul, Vollgraf 2017).
std::shared_ptr<const Dataset> make_fashion_mnist(const DatasetOptions& options);

}  // namespace norma::data
