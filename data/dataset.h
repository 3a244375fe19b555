#pragma once

#include "data/image_file.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::data {

enum class Split { train, test };

std::string_view to_string(Split split);

/// The properties that all images of a dataset share.
struct DatasetInfo {
  std::string name;
  int64_t size = 0;      ///< images; for an endless dataset, the images that count as one epoch
  bool endless = false;  ///< every index >= 0 is an image
  int64_t channels = 1;
  int64_t height = 0;            ///< 0: the images differ in size
  int64_t width = 0;             ///< likewise
  bool sorted_by_label = false;  ///< images of a class stand together, so the first ones are no fair sample
  std::vector<std::string> class_names;
  std::vector<std::string> empty_classes;  ///< those without an image in this split, as far as known (imagefolder)
  std::vector<float> mean;                 ///< of each channel over the training images, with values scaled to [0, 1]
  std::vector<float> std;                  ///< likewise, the standard deviation

  [[nodiscard]] int64_t num_classes() const { return static_cast<int64_t>(class_names.size()); }
  /// Bytes of one image; 0 if the images differ in size.
  [[nodiscard]] int64_t image_bytes() const { return channels * height * width; }
};

/// Images with labels, found by index.
class Dataset {
 public:
  virtual ~Dataset() = default;

  [[nodiscard]] virtual const DatasetInfo& info() const = 0;
  /// Loads image `index` into `image`, whose memory is used again, and returns its label. The image has info().channels
  /// and, unless they are 0, info().height and width. It depends on the index alone. Several threads may call at once,
  /// each with an image of its own. Throws Error when there is no such image or it cannot be read.
  virtual int64_t load(int64_t index, Image& image) const = 0;
  /// The label of image `index`, which must exist. Datasets that know it without loading the image override this.
  [[nodiscard]] virtual int64_t label(int64_t index) const {
    Image image;
    return load(index, image);
  }
  /// The names of the images that load() has so far replaced by the next good one (DatasetOptions::skip_bad_images),
  /// each once, sorted.
  [[nodiscard]] virtual std::vector<std::string> skipped() const { return {}; }
  /// What lies in the dataset's folder and is not used, for people to look at, a line each: names that begin with a
  /// point, and files that look like images.
  [[nodiscard]] virtual std::vector<std::string> left_out() const { return {}; }
};

struct DatasetOptions {
  Split split = Split::train;
  std::filesystem::path folder = {};  ///< folder of the files; empty: where the dataset's package puts them
  uint64_t seed = 0;                  ///< of generated images
  int64_t image_size = 32;            ///< height and width of generated images
  int64_t size = 0;                   ///< images per epoch of generated images; 0: 60,000 (train) or 10,000 (test)
  /// For datasets that decode image files: if an image cannot be decoded, load() gives the split's next good one with
  /// its label instead of an error.
  bool skip_bad_images = false;
  bool exif_orientation = false;  ///< for the same: turn_upright()
};

using DatasetFactory = std::function<std::shared_ptr<const Dataset>(const DatasetOptions& options)>;

/// Makes a dataset of dataset_names(). Throws Error with the nearest known name for an unknown one, and the errors of
/// its files.
std::shared_ptr<const Dataset> make_dataset(std::string_view name, const DatasetOptions& options = {});
/// Makes a dataset known to make_dataset(), and so to every command. Throws Error when the name is taken.
void register_dataset(const std::string& name, const std::string& description, DatasetFactory factory);
/// The known names in alphabetical order.
std::vector<std::string> dataset_names();
/// One line about a known dataset, for lists. Throws as make_dataset() for an unknown name.
std::string dataset_description(std::string_view name);

}  // namespace norma::data
