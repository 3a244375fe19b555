#pragma once

#include "data/loader.h"
#include "lab/compare/comparison.h"
#include "lab/report/report.h"
#include "nn/module.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace norma::lab {

/// True iff the norm tax of a timing_group() can be found: it has batch norm and another norm.
bool can_be_timed(const Comparison& comparison, const Settings& group);

/// The groups for which can_be_timed() is true, in the order of their cells. A divided comparison times a group in the
/// part that has its first cell.
std::vector<Settings> groups_to_time(const Comparison& comparison);

/// The number of times that each group's networks are made for their rounds. Making them costs more than a round, so
/// with many groups each is visited only a few times.
size_t timing_visits(size_t cells, size_t groups);

/// The images of a step.
struct TimingImages {
  data::Batch batch;
  int64_t num_classes;
};

/// The options of time_norms().
struct TimingOptions {
  /// The images for a group, given a recipe of one of its cells.
  std::function<TimingImages(const train::Recipe& recipe)> images;
  bool quiet = false;
};

/// Lets the norms of each timing_group() make training steps by turns, until comparison.timings has the rounds due
/// before the cell of this index (or at the end, for the number of cells). The rounds are spread over these moments;
/// with several groups, not all run at each. Each round has another order. The networks of one group are in memory
/// together. They are made anew each time, and one step of each is not timed. A norm that throws is left out, and
/// `problem` says why. Stops at train::interrupted(), without the round in progress.
void time_norms(Comparison& comparison, size_t cell, const TimingOptions& options);

/// True iff every group that can be timed has all its rounds.
bool timing_is_complete(const Comparison& comparison);

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
/// returns early when train::interrupted(). All processes of a group call it. Throws Error as Trainer::run(),
/// and for a checkpoint of another run.
void make_sources(Comparison& comparison, const ComparisonOptions& options);

/// A cell's recipe with the place of the network that it starts from.
train::Recipe with_source(train::Recipe recipe, const Comparison& comparison, const ComparisonOptions& options);

}  // namespace norma::lab
