#pragma once

#include "data/dataset.h"

#include <memory>

// The datasets that make_dataset() knows by name.

namespace norma::data {

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
