#pragma once

#include <cstdint>
#include <utility>

// The distributions of tests and intervals, from Boost.Math.

namespace norma::lab {

/// The value that |t| exceeds with probability `chance`, for Student's t with this many degrees of freedom (1 or more).
double student_t(int64_t freedom, double chance);

/// The inverse: the probability of a |t| as large as this one's, or larger.
double student_t_chance(int64_t freedom, double t);

/// The value that |z| exceeds with probability `chance`, for a standard normal z.
double normal(double chance);

/// The probability that a standard normal number is at most z.
double normal_below(double z);

/// The probability of at most this many heads in tosses of a fair coin; 0 for fewer than 0.
double heads_at_most(int64_t tosses, int64_t heads);

/// The least and the largest probability of a head that such tosses leave possible, each with `chance` / 2 (Clopper and
/// Pearson, 1934): 1/2 lies outside exactly where twice heads_at_most() of the rarer side is below `chance`.
std::pair<double, double> heads_interval(int64_t tosses, int64_t heads, double chance);

}  // namespace norma::lab
