#pragma once

#include <cstdint>

namespace norma::lab {

/// The value that |t| exceeds with probability `chance`, for Student's t with this many degrees of freedom (1 or more).
double student_t(int64_t freedom, double chance);

/// The inverse: the probability of a |t| as large as this one's, or larger.
double student_t_chance(int64_t freedom, double t);

}  // namespace norma::lab
