#pragma once

#include "data/image_file.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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

/// Images with labels, found by index. A dataset of your own fills in `info_`, or overrides info().
class Dataset {
 public:
  explicit Dataset(DatasetInfo info = {}) : info_(std::move(info)) {}
  virtual ~Dataset() = default;

  [[nodiscard]] virtual const DatasetInfo& info() const { return info_; }
  /// Loads image `index` into `image`, whose memory is used again, and returns its label. The image has info().channels
  /// and, unless they are 0, info().height and width. It depends on the index alone. Several threads may call at once,
  /// each with an image of its own. Throws Error when there is no such image or it cannot be read.
  virtual int64_t load(int64_t index, Image& image) const = 0;
  /// As load(), for a window of the image that `choose` makes of its sizes: its place in `image` goes to `window`.
  /// `image` is the whole one or a part of it. Datasets that can load a part sooner override this.
  virtual int64_t load_window(int64_t index, const ChooseWindow& choose, Image& image, Rectangle& window) const {
    const int64_t label = load(index, image);
    window = choose(image.height, image.width);
    return label;
  }
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

 protected:
  DatasetInfo info_;
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
  int64_t enough = 0;             ///< for the same: NeededPart::enough
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

// The datasets that make_dataset() knows by name.

/// "shapes": an endless set of generated color images, for machines without image files. Each shows one of ten shapes
/// at a random place, size, angle and color before a noisy background. Image `i` of a split depends only on the seed,
/// image_size and i; train and test images come from separate random streams. Throws Error unless image_size is at
/// least 8 and size at least 0.
std::shared_ptr<const Dataset> make_shapes(const DatasetOptions& options);

/// "idx": any folder of IDX files. Classes are numbered up to the largest label of both splits. Mean and standard
/// deviation come from the training images, also for the test split, unless the folder has none. Throws Error as
/// load_idx_dataset(), and when the folder or a file of the split is missing.
std::shared_ptr<const Dataset> make_idx_folder(const DatasetOptions& options);

/// "emnist_letters": the letters of EMNIST (Cohen, Afshar, Tapson, van Schaik 2017), from the files
/// emnist-letters-train-images-idx3-ubyte and so on; files of EMNIST's other parts may lie beside them. The files hold
/// each image mirrored at its diagonal, and the labels 1 to 26; load() gives upright images, and labels from 0 for A to
/// 25 for Z. Otherwise as make_idx_folder().
std::shared_ptr<const Dataset> make_emnist_letters(const DatasetOptions& options);

/// "fashion_mnist": 60,000 + 10,000 grey images of 28 x 28 pixels (Xiao, Rasul, Vollgraf 2017), from IDX files in
/// options.folder, by default those of Debian's package dataset-fashion-mnist.
std::shared_ptr<const Dataset> make_fashion_mnist(const DatasetOptions& options);

/// "cifar10" and "cifar100": 50,000 + 10,000 color images of 32 x 32 pixels (Krizhevsky 2009), from the files of the
/// binary version (https://www.cs.toronto.edu/~kriz/cifar.html). CIFAR-10 has data_batch_1.bin … data_batch_5.bin,
/// test_batch.bin and batches.meta.txt; CIFAR-100 has train.bin, test.bin and fine_label_names.txt, and its fine labels
/// are used. They lie in options.folder or below it in the archive's folder, cifar-10-batches-bin (cifar-100-binary). A
/// whole split is kept in memory: 154 and 31 MB. Throws Error that names the file when one is missing, has a wrong
/// length, or holds a label that is no class.
std::shared_ptr<const Dataset> make_cifar10(const DatasetOptions& options);
std::shared_ptr<const Dataset> make_cifar100(const DatasetOptions& options);

/// "imagefolder": photographs in a folder for each class, as in torchvision's ImageFolder. Training images are in
/// FOLDER/train/CLASS/…, test images in the first of FOLDER/val, FOLDER/validation and FOLDER/test that is there.
/// Classes are the folders in FOLDER/train (or in the split's folder if there is no FOLDER/train), numbered in the
/// order of their names. Images are all files below a class's folder whose names end as in torchvision's IMG_EXTENSIONS
/// (.jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp; upper case too) or in .gif, sorted. Names that begin with
/// a point do not count, neither of files nor of folders. load() reads and decodes one, and with
/// options.exif_orientation turns it upright. A file that cannot be decoded is an error then; with
/// options.skip_bad_images another image replaces it. Too little memory is OutOfMemory in any case. Images are in
/// color, of any size; mean and standard deviation are ImageNet's. Throws Error when a folder is missing or cannot be
/// read, for a class without images, a class of the test images that training lacks, a name that is not UTF-8, and
/// folders more than 32 deep or more than 65,536 in a class (links may lead to the same ones).
std::shared_ptr<const Dataset> make_image_folder(const DatasetOptions& options);

}  // namespace norma::data
