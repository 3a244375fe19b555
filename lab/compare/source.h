#pragma once

#include "lab/compare/comparison.h"
#include "nn/module.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::lab {

/// True iff a cell starts from weights, and not from random ones.
bool starts_from_weights(const Settings& settings);

/// True iff a cell's norms are those of other weights, by "fold" or "calibrate".
bool converts_norms(const Settings& settings);
/// Passes of a network over the images of a conversion, as docs/finetune.md counts them, in halves: those that end at a
/// norm are half a pass on average.
int64_t half_passes_to_calibrate(const nn::Module& network);
/// All half passes of a cell's conversion, given those to calibrate its network; 0 without a conversion.
int64_t half_passes_of_conversion(const Settings& settings, int64_t to_calibrate);

/// The models of the networks that a comparison trains for its cells to start from, in the order of the cells.
std::vector<std::string> source_models(const Comparison& comparison);

/// Finds out what the runs of a new comparison start from, and leaves out the settings that mean nothing there: a
/// conversion ("fold", "calibrate") to the norm that the weights have, "fold" from a norm without running statistics,
/// and "frozen" with such a norm. Throws Error "compare: start: …" where there is neither a file nor other classes, for
/// a start or a norm that would have no run at all, and for a file that cannot be read.
void plan_starts(const ComparisonOptions& options, Comparison& comparison, std::vector<Settings>& settings);

/// The SHA-256 of a file's bytes. Throws Error "initial-checkpoint: …".
std::string initial_sha256(const std::string& file);

/// Trains the networks that unfinished cells start from, in the output folder, from their checkpoints if there are any;
/// returns early when interrupted() (interrupt.h). All processes of a group call it. Throws Error as Trainer::run(),
/// and for a checkpoint of another run.
void make_sources(Comparison& comparison, const ComparisonOptions& options);

/// A cell's recipe with the place of the network that it starts from.
train::Recipe with_source(train::Recipe recipe, const Comparison& comparison, const ComparisonOptions& options);

}  // namespace norma::lab
