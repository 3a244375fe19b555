#pragma once

#include <cstdint>
#include <vector>

// Does a norm differ from another one? The answer from accuracies in percent, one for each seed.

/// The differences norm - reference, seed by seed.
struct Differences {
  double mean = 0;
  double deviation = 0;  ///< sqrt(sum((difference - mean)²) / (count - 1))
  int64_t count = 0;
};

/// The range in which the true difference lies, 19 times out of 20.
struct Interval {
  double low = 0;
  double high = 0;
};

enum class Verdict {
  better,   ///< the whole interval is above 0
  worse,    ///< the whole interval is below 0
  matches,  ///< neither, and the whole interval lies between -margin and margin
  unknown,  ///< anything else: the runs are too few, or too noisy
};

/// Student's t for 1 to 30 degrees of freedom. It is there.
double student_t(int64_t degrees);

/// Gap 1. Both have a number for each seed, in the same order; at least two.
Differences differences_of(const std::vector<double>& norm, const std::vector<double>& reference);

/// Gap 2: mean ± t * deviation / sqrt(count), with t for count - 1 degrees of freedom.
Interval interval_of(const Differences& differences);

/// Gap 3. margin: the difference in points that would not matter to anybody.
Verdict verdict_of(const Interval& interval, double margin);
