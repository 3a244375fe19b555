#pragma once

#include "core/sizes.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace norma {

/// How the axes N, C, H, W lie in memory. The order of the sizes never changes.
///  contiguous:    W fastest, then H, C, N (NCHW)
///  channels_last: C fastest, then W, H, N (NHWC); rank 4 only
///  preserve:      the format of the tensor at hand
enum class MemoryFormat : uint8_t { contiguous, channels_last, preserve };

std::string_view to_string(MemoryFormat format);

Strides contiguous_strides(const Sizes& sizes);
/// Throws Error unless there are 4 sizes.
Strides channels_last_strides(const Sizes& sizes);
/// Strides of a new tensor in `format`, which must not be `preserve`.
Strides strides_for(const Sizes& sizes, MemoryFormat format);

/// The number of elements from the first to the last that the strides reach, both counted; 0 for an empty tensor.
int64_t reach(const Sizes& sizes, const Strides& strides);

/// True iff elements lie in row-major order without gaps. Axes of size 1 are ignored; an empty tensor is contiguous.
bool is_contiguous(const Sizes& sizes, const Strides& strides);

/// True iff rank is 4 and elements lie in the order N, H, W, C without gaps. Axes of size 1 are ignored,
/// so a tensor with C = 1 or H = W = 1 can be contiguous in both formats.
bool is_channels_last_contiguous(const Sizes& sizes, const Strides& strides);

/// True iff rank is 4 and the strides, also those of axes of size 1, order the axes as N, H, W, C;
/// gaps are allowed. False for N111 and N11W, whose strides cannot tell, and for empty tensors.
bool is_channels_last_strides(const Sizes& sizes, const Strides& strides);

/// The format a result should have: channels_last iff is_channels_last_strides, else contiguous.
MemoryFormat suggest_memory_format(const Sizes& sizes, const Strides& strides);

/// True iff the elements fill one block of memory, each place used once, in any order of axes.
bool is_non_overlapping_and_dense(const Sizes& sizes, const Strides& strides);

/// True iff both strides put the elements in the same places. Strides of axes of size 1 do not matter.
bool same_places(const Sizes& sizes, const Strides& a, const Strides& b);

/// Strides without gaps. `order`: the axes, the innermost first. Throws Error of `op` for too many elements.
Strides dense_strides(std::string_view op, const Sizes& sizes, std::span<const int64_t> order);

/// Strides of a dense block of `sizes` whose axes have the order that the strides of one or more operands give. For
/// each two axes the first operand that is broadcast along neither (stride 0) decides; if there is none, their order is
/// row-major.
Strides ordered_strides(const Sizes& sizes, std::span<const Strides> strides);

/// Strides of a new tensor like one with these sizes and strides: the same strides if those are non-overlapping and
/// dense, otherwise dense strides in the same order of axes. An empty tensor gets those of suggest_memory_format.
Strides preserved_strides(const Sizes& sizes, const Strides& strides);

}  // namespace norma
