// Lesson 6: fill the three gaps, then: ./run lesson 6 --check

#include "exercise.h"

#include <cstddef>
#include <stdexcept>

RowSums sums_of(const Row& row) {
  // GAP 1: go over the elements i of the row. Make g = dy[i] * weight[i] and xhat = (x[i] - mean) * rstd, and add up g
  // and g * xhat.
  throw std::logic_error("gap 1 is not written yet: sums_of()");
}

std::vector<double> gradient_of_x(const Row& row, const RowSums& sums) {
  // GAP 2: the last formula of the page, for each element i. sums.g and sums.g_xhat are the same for all of them.
  throw std::logic_error("gap 2 is not written yet: gradient_of_x()");
}

void add_parameter_gradients(const Row& row, std::vector<double>& dweight, std::vector<double>& dbias) {
  // GAP 3: add to dweight[i] and dbias[i]; do not set them: other rows add theirs too.
  throw std::logic_error("gap 3 is not written yet: add_parameter_gradients()");
}
