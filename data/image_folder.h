#pragma once

#include "data/dataset.h"

#include <memory>

namespace norma::data {

/// "imagefolder": photographs in a folder for each class, as torchvision's ImageFolder takes them. Training images are
/// in FOLDER/train/CLASS/…, test images in FOLDER/val, FOLDER/validation or FOLDER/test, the first of these that is
/// there. Classes are numbered in the order of their names, which are those of the folders in FOLDER/train (without it,
/// in that of the split). Images are all files below a class's folder whose names end as torchvision's IMG_EXTENSIONS
/// (.jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp; upper case too), sorted; load() reads and decodes one.
/// A file that cannot be decoded, such as a TIFF or WebP, is an error there; with options.skip_bad_images another image
/// replaces it. Too little memory is OutOfMemory in any case.
/// Images are of colour, of any size; mean and standard deviation are ImageNet's. Throws Error when a folder is not
/// there or cannot be read, for a class without images, a class of the test images that training lacks, a name that is
/// not UTF-8, and folders more than 32 deep or more than 65,536 in a class (links may lead to the same ones).
std::shared_ptr<const Dataset> make_image_folder(const DatasetOptions& options);

}  // namespace norma::data
