#pragma once

#include "data/loader.h"
#include "lab/report/report.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace norma::lab {

/// True iff the tax of the norms of a timing_group() can be found: batch norm is among them, and another one.
bool can_be_timed(const Comparison& comparison, const Settings& group);

/// The groups of which that is true, in the order of their cells.
std::vector<Settings> groups_to_time(const Comparison& comparison);

/// How often in a comparison of so many cells the networks of each of so many groups are made for their rounds: that
/// costs more than a round, so where there are many groups each is visited a few times only.
size_t timing_visits(size_t cells, size_t groups);

/// The images of a step.
struct TimingImages {
  data::Batch batch;
  int64_t num_classes;
};

/// What groups are timed with.
struct TimingOptions {
  /// Those of a group: a recipe of one of its cells is given.
  std::function<TimingImages(const train::Recipe& recipe)> images;
  bool quiet = false;
};

/// Has the norms of each timing_group() make training steps in turns, until each has the rounds in comparison.timings
/// that are due before the cell of this index, or at the end for the number of cells. They are spread over all these
/// moments; of several groups, not all have a part of theirs at each. Each round has another order. The networks of one
/// group are in memory together; they are new ones each time, and one step of each is not timed. A norm that throws is
/// left out, and `problem` says why. Stops where interrupted() (interrupt.h), without the round it was in.
void time_norms(Comparison& comparison, size_t cell, const TimingOptions& options);

/// True iff every group that can be timed has all its rounds.
bool timing_is_complete(const Comparison& comparison);

}  // namespace norma::lab
