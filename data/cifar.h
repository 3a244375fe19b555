#pragma once

#include "data/dataset.h"

#include <memory>

namespace norma::data {

/// "cifar10" and "cifar100": 50,000 + 10,000 colour images of 32 x 32 pixels (Krizhevsky 2009), from the files of the
/// binary version (https://www.cs.toronto.edu/~kriz/cifar.html): data_batch_1.bin … data_batch_5.bin, test_batch.bin
/// and batches.meta.txt; train.bin, test.bin and fine_label_names.txt, of which the fine labels are taken.
/// options.folder has them, or has the folder cifar-10-batches-bin (cifar-100-binary) that the archive unpacks to. All
/// of a split is kept in memory: 154 and 31 MB. Throws Error that names the file when one is missing, has another
/// length than it should, or holds a label that is no class.
std::shared_ptr<const Dataset> make_cifar10(const DatasetOptions& options);
std::shared_ptr<const Dataset> make_cifar100(const DatasetOptions& options);

}  // namespace norma::data
