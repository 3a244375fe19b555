#pragma once

#include "data/dataset.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace norma::data {

/// The bytes of an IDX file (the format of MNIST: http://yann.lecun.com/exdb/mnist) with its sizes.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> values;  ///< row-major
};

/// Reads a file of bytes with `rank` axes, plain or packed with gzip. Throws Error that names the file when it is
/// missing, truncated, damaged, of another type or rank, has an axis of size 0 or more than 8 GiB, or goes on after the
/// last value.
IdxArray read_idx(const std::filesystem::path& file, int64_t rank);

/// The images and labels of one split of a folder: files whose names end in train-images-idx3-ubyte,
/// train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (or test-… for t10k-…, .idx for -idx), with
/// or without .gz.
struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

/// Finds the files whose names begin with `prefix`. The path of a missing file is empty. If a file is there plain and
/// packed, the plain one is taken. Throws Error when several files fit otherwise.
IdxFiles find_idx_files(const std::filesystem::path& folder, Split split, std::string_view prefix = "");

/// How the images and labels of the files are stored.
struct IdxLayout {
  bool transposed = false;  ///< images are stored column by column
  int64_t first_label = 0;  ///< the label of the first class
};

/// Loads grey images into memory. Throws Error when there are not as many labels as images, or a label has no class
/// name. `info` needs name, class_names, mean and std.
std::shared_ptr<const Dataset> load_idx_dataset(const IdxFiles& files, DatasetInfo info, const IdxLayout& layout = {});

}  // namespace norma::data
