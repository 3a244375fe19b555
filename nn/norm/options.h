#pragma once

#include "core/tensor.h"
#include "ops/norm/norm.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace norma::nn {

// Options and checks that the norm layers share.

/// ", affine=false", or else ", bias=false", and ", offset=true" and ", statistics=sum_of_squares" where they are not
/// the default.
std::string norm_option_text(bool affine, Statistics statistics, bool bias = true, bool offset = false);

/// What scales the output of a norm: the weight, or with `offset` 1 + weight in the dtype of the computation.
Tensor gain_of(const Tensor& weight, bool offset);

inline constexpr int64_t kMostChannels = 65536;  ///< more than any network has: what asks for more is a typing error

struct NormChoice;
/// A number of channels that the groups of a spec divide: the least one that is known without its layers.
int64_t least_channels(const NormChoice& choice);

/// Throw Error, in the name of `layer`, unless eps >= 0, or momentum lies in [0, 1] or is none.
void check_eps(std::string_view layer, double eps);
void check_momentum(std::string_view layer, double momentum);
void check_momentum(std::string_view layer, std::optional<double> momentum);
/// Throws Error, in the name of `layer`, for an offset of the weight that affine = false leaves out.
void check_offset(std::string_view layer, bool affine, bool offset);

/// Throws Error, in the name of `op`, unless x is (N, channels, …) with `low` to `high` axes.
void check_norm_input(std::string_view op, const Tensor& x, int64_t channels, int64_t low, int64_t high);

}  // namespace norma::nn
