#pragma once

#include <cstdint>

namespace norma::lab {

/// What |t| exceeds with this probability, for t of Student's distribution with so many degrees of freedom (1 or more).
double student_t(int64_t freedom, double chance);

}  // namespace norma::lab
