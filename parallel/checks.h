#pragma once

#include "core/tensor.h"

#include <string_view>

namespace norma::parallel {

/// Throws Error unless x is a dense tensor, whose elements lie side by side.
void check_dense(std::string_view op, const Tensor& x);
/// Throws Error unless x is dense, and float32 or float64, as begin_all_reduce() takes it.
void check_summand(const Tensor& x);
void check_root(int root, int ranks);

}  // namespace norma::parallel
