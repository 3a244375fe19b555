#include "base/error.h"
#include "data/atomic_file.h"
#include "data/datasets.h"
#include "data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace norma::data {

namespace {

std::string_view prefix(Split split) {
  return split == Split::train ? "train" : "t10k";
}

/// Sets mean and standard deviation to those of all bytes, scaled to [0, 1]: of the training images, or of the split's
/// if there are none. The sums are exact, since bytes are small integers.
void set_statistics(DatasetInfo& info, const IdxFiles& train, const IdxFiles& files) {
  const std::vector<uint8_t> bytes = read_idx(train.images.empty() ? files.images : train.images, /* rank= */ 3).values;
  uint64_t sum = 0;
  uint64_t squares = 0;
  for (const uint64_t byte : bytes) {
    sum += byte;
    squares += byte * byte;
  }
  const auto count = static_cast<double>(bytes.size());
  const double mean = static_cast<double>(sum) / count;
  const double variance = static_cast<double>(squares) / count - mean * mean;
  // If all images have a single color, any scale will do.
  const double std = variance > 0 ? std::sqrt(variance) : 255;
  info.mean = {static_cast<float>(mean / 255)};
  info.std = {static_cast<float>(std / 255)};
}

}  // namespace

std::shared_ptr<const Dataset> make_idx_folder(const DatasetOptions& options) {
  check(!options.folder.empty(), "idx", "expected a folder with IDX files (option --data-dir), got none");
  check_folder("idx", options.folder);
  const IdxFiles files = find_idx_files(options.folder, options.split);
  const IdxFiles train = find_idx_files(options.folder, Split::train);
  const IdxFiles test = find_idx_files(options.folder, Split::test);
  check(!files.images.empty(), "idx", "{}: expected a file {}-images-idx3-ubyte or {}-images-idx3-ubyte.gz, found none",
        options.folder.string(), prefix(options.split), prefix(options.split));
  check(!files.labels.empty(), "idx", "{}: expected a file {}-labels-idx1-ubyte or {}-labels-idx1-ubyte.gz, found none",
        options.folder.string(), prefix(options.split), prefix(options.split));

  DatasetInfo info;
  info.name = "idx";
  int64_t largest = 0;
  for (const auto& labels : {train.labels, test.labels}) {
    if (!labels.empty()) {
      const IdxArray array = read_idx(labels, /* rank= */ 1);
      largest = std::max<int64_t>(largest, *std::max_element(array.values.begin(), array.values.end()));
    }
  }
  for (int64_t label = 0; label <= largest; ++label) {
    info.class_names.push_back(std::to_string(label));
  }
  set_statistics(info, train, files);
  return load_idx_dataset(files, std::move(info));
}

std::shared_ptr<const Dataset> make_emnist_letters(const DatasetOptions& options) {
  constexpr const char* kName = "emnist_letters";
  constexpr std::string_view kPrefix = "emnist-letters-";
  const std::filesystem::path& folder = options.folder;
  check(!folder.empty(), kName, "expected the folder with EMNIST's files (option --data-dir), got none");
  check_folder(kName, folder);
  const IdxFiles files = find_idx_files(folder, options.split, kPrefix);
  const IdxFiles train = find_idx_files(folder, Split::train, kPrefix);
  check(!files.images.empty() && !files.labels.empty(), kName,
        "{}: expected a file {}{}-{}-ubyte or {}{}-{}-ubyte.gz, found none", folder.string(), kPrefix,
        to_string(options.split), files.images.empty() ? "images-idx3" : "labels-idx1", kPrefix,
        to_string(options.split), files.images.empty() ? "images-idx3" : "labels-idx1");
  DatasetInfo info;
  info.name = kName;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    info.class_names.emplace_back(1, letter);
  }
  set_statistics(info, train, files);
  return load_idx_dataset(files, std::move(info), {.transposed = true, .first_label = 1});
}

std::shared_ptr<const Dataset> make_fashion_mnist(const DatasetOptions& options) {
  // Debian's package puts the files here.
  const std::filesystem::path folder = options.folder.empty() ? "/usr/share/datasets/fashion-mnist" : options.folder;
  const IdxFiles files = find_idx_files(folder, options.split);
  check(!files.images.empty() && !files.labels.empty(), "fashion_mnist",
        "{}: expected a file {}-{}-ubyte.gz, found none; install Debian's package dataset-fashion-mnist "
        "(apt-get install dataset-fashion-mnist) or give the folder with the files (option --data-dir)",
        folder.string(), prefix(options.split), files.images.empty() ? "images-idx3" : "labels-idx1");
  DatasetInfo info;
  info.name = "fashion_mnist";
  info.class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  // Statistics of all 60000 * 28 * 28 training pixels; a test computes them again.
  info.mean = {0.28604F};
  info.std = {0.35302F};
  return load_idx_dataset(files, std::move(info));
}

}  // namespace norma::data
