#pragma once

#include "data/loader.h"
#include "nn/module.h"

#include <cstdint>

namespace norma::train {

/// Precise batch norm (Wu and Johnson, "Rethinking Batch in BatchNorm", 2021): replaces the running statistics of all
/// batch norms by mean and variance of the population, all images of up to `max_batches` batches together, under the
/// present weights: an average over batches would lack the variance between them. 200 is fvcore's default, too. Frozen
/// statistics (Module::freeze_statistics()) stay. Batch renorm runs as batch norm. All else runs as in evaluation;
/// instance norms and EvoNorm B0 keep their running statistics. Modes, momenta, renorm's bounds and num_batches_tracked
/// are restored, and after an exception the statistics, too. Returns the number of batches used. Throws Error when the
/// model has no batch norm with running statistics that are not frozen, or the loader no batch.
int64_t recalibrate(nn::Module& model, data::Loader& batches, int64_t max_batches = 200);

/// Throws the Error of recalibrate() for a model without such batch norms.
void check_recalibrates(const nn::Module& model);

}  // namespace norma::train
