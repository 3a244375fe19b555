#pragma once

#include "core/device.h"
#include "data/loader.h"
#include "train/recipe.h"

#include <functional>
#include <string>

namespace norma::train {

/// For a run whose batches do not fit into memory: the first batch size that does of half the images, a quarter, …,
/// found by steps of which nothing remains but what they have done to the network. `step` trains on a batch.
/// As the end of an error text: "; --batch-size 16 --grad-accum-steps 8 would fit, with as many images in an update",
/// or why there is none; "" where a signal came.
std::string largest_batch_text(const Recipe& recipe, int workers, Device device,
                               const std::function<void(const data::Batch&)>& step);

}  // namespace norma::train
