#pragma once

#include <norma/norma.h>

#include <functional>
#include <vector>

using norma::Tensor;
using Layer = std::function<Tensor(const Tensor&)>;

/// The gradient of x for the RMS norm of one row, y[i] = x[i] * r * weight[i] with r = 1 / sqrt(mean(x²) + eps). All
/// have the same length; dy is the gradient of y.
std::vector<double> rms_norm_backward(const std::vector<double>& x, const std::vector<double>& weight,
                                      const std::vector<double>& dy, double eps);

/// Where the norms of a residual block stand. The page has a formula for each.
enum class Placement { none, pre, post, peri };

/// One block of a residual network. `norm_in` is for a norm before the branch, `norm_out` for one after it; a
/// placement calls those that it has, and no other.
Tensor block(const Tensor& x, Placement placement, const Layer& branch, const Layer& norm_in, const Layer& norm_out);

/// The factor s on the result of each branch that makes the variance of the stream after `depth` blocks 2, if it is 1
/// before the first. `pre`: whether the branch reads a normed stream. A branch gives numbers of the variance that it
/// reads, which are independent of the stream, so that variances of stream and branch add up.
double branch_factor(int depth, bool pre);
