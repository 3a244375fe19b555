#pragma once

#include "core/cuda/kernel.h"
#include "ops/norm/kernels.h"

// The kernels for the cases that networks are made of. Each function returns whether it covers the case; if not, it has
// done nothing.

namespace norma::kernels::NORMA_BACKEND {

/// Sets that are one run of memory and fit into the registers of some threads; without running statistics.
bool rows_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool rows_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Sets side by side, with weights that do not vary from row to row.
bool columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool columns_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Sets side by side, with weights that vary from row to row alone; without running statistics.
bool pixels_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool pixels_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Sets of one or several runs of memory, with a weight for each.
bool runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
bool runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

/// Calls f(S{}) for the dtypes that have these kernels, and returns its result; false for the others.
template <class F>
bool dispatch_fast(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::float16: return f(float16{});
    default: return false;
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
