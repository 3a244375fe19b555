#pragma once

#include "data/loader.h"
#include "lab/report/report.h"

#include <cstdint>
#include <string_view>

namespace norma::lab {

/// True iff the tax of this model's norms can be found: batch norm is among them, and another one.
bool can_be_timed(const Comparison& comparison, std::string_view model);

/// What a model is timed with.
struct TimingOptions {
  const data::Batch* batch;  ///< the images of each step
  int64_t num_classes;
  bool quiet = false;
};

/// Has the norms of each model make training steps in turns until each has `due` rounds in comparison.timings. Each
/// round has another order. The networks of one model are in memory together; they are new ones each time, and
/// one step of each is not timed. A norm that throws is left out, and `problem` says why. Stops where interrupted()
/// (interrupt.h), without the round it was in.
void time_norms(Comparison& comparison, int64_t due, const TimingOptions& options);

/// True iff every model that can be timed has all its rounds.
bool timing_is_complete(const Comparison& comparison);

}  // namespace norma::lab
