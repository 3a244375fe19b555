#pragma once

#include "core/device.h"
#include "core/tensor.h"
#include "data/augment/mix.h"

#include <cstdint>

namespace norma::data {

/// Images and labels on the CPU; the consumer copies them to its device.
struct Batch {
  /// (N, C, H, W) in LoaderOptions::format: float32, normalized and mixed. With LoaderOptions::bytes they are uint8,
  /// and images_on() normalizes and mixes them.
  Tensor images;
  Tensor table;       ///< with uint8: (C, 256), float32, the normalized value of each byte
  Mix mix;            ///< with uint8: how the images are still to be mixed
  Tensor labels;      ///< (N) int64
  Tensor targets;     ///< (N, classes) float32, the share of each class, if the run mixes images; else undefined
  int64_t epoch = 0;  ///< from 0
  int64_t index = 0;  ///< in the epoch, from 0
  int64_t step = 0;   ///< in the run, from 0, as LoaderOptions::first_step counts
  // With LoaderOptions::part a batch has the images of this process alone, and N may be 0.
  int64_t first = 0;  ///< the number of the first image in the whole batch
  int64_t total = 0;  ///< the images of the whole batch
};

/// The images of a batch in float32, normalized and mixed, on a device. The result has the same bits, whether the batch
/// has them as float32 or as uint8.
Tensor images_on(const Batch& batch, Device device);

}  // namespace norma::data
