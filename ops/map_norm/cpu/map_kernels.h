#pragma once

#include "ops/map_norm/kernels.h"

// The CPU kernels behind MapNormKernels, except those of maps.cpp itself.

namespace norma::kernels::cpu {

// numbers.cpp
void map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers);
void map_numbers_backward(DType dtype, const MapProblem& problem, const MapSources& sources,
                          const MapNumbersBackward& arrays);
// map_sums.cpp
void map_sums(DType dtype, const MapProblem& problem, const MapSums& arrays);
// local_response.cpp
void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays);

}  // namespace norma::kernels::cpu
