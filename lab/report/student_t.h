#pragma once

#include <cstdint>

namespace norma::lab {

/// What |t| exceeds with this probability, for t of Student's distribution with so many degrees of freedom (1 or more).
double student_t(int64_t freedom, double chance);

/// The reverse: how probable it is that |t| is as large as this one's, or larger.
double student_t_chance(int64_t freedom, double t);

}  // namespace norma::lab
