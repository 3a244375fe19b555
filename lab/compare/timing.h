#pragma once

#include "data/loader.h"
#include "lab/report/report.h"

#include <cstddef>
#include <cstdint>
#include <functional>
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
/// `problem` says why. Stops at interrupted() (interrupt.h), without the round in progress.
void time_norms(Comparison& comparison, size_t cell, const TimingOptions& options);

/// True iff every group that can be timed has all its rounds.
bool timing_is_complete(const Comparison& comparison);

}  // namespace norma::lab
