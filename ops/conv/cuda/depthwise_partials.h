#pragma once

#include "ops/reduce/device_reduce.h"

namespace norma::kernels::NORMA_BACKEND {

/// The second stage of a weight gradient: adds the partial sums of the blocks in a fixed order, as elements S.
template <class S>
void add_partials(const ReduceShape& shape, const compute_t<S>* partials, S* dweight) {
  reduce(ReduceAxes(shape), Folding<Sum<compute_t<S>>>{}, partials, nullptr, /* scale= */ 1.0, dweight);
}

}  // namespace norma::kernels::NORMA_BACKEND
