#pragma once

#include "core/tensor.h"

namespace norma {

// Off-tape copies. The differentiable forms (clone, contiguous, to) are in ops/shape/copy.h.

/// Writes src, broadcast to dst's sizes and converted to dst's dtype, into dst, whatever the strides of both.
/// Counts as an in-place change of dst. They may lie on different devices. Throws Error if the sizes do not broadcast.
void copy_into(const Tensor& src, const Tensor& dst);

/// copy_into(from[i], to[i]) for all i. A GPU copies all pairs of the same two dtypes in a launch or two if the strides
/// of each pair are equal and dense. The tensors in `to` must share no elements with each other, nor with those in
/// `from`.
void copy_all_into(const Tensors& from, const Tensors& to);
/// The same with to[i] = factor · from[i], computed in compute_dtype() of to[i]. `factor` is one float64 number on
/// their device. The tensors of a pair are both float32, both float64, or a 16-bit one and a float32 one. Throws Error
/// unless their strides are equal and dense.
void copy_all_into(const Tensors& from, const Tensors& to, const Tensor& factor);

/// A new tensor with x's values on x's device, in `format` and `dtype`.
Tensor copy_of(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);
Tensor copy_of(const Tensor& x, MemoryFormat format, DType dtype);
/// The same with exactly these strides.
Tensor copy_of(const Tensor& x, const Strides& strides, DType dtype);

/// x itself if it is contiguous in `format` (Tensor::is_contiguous()), else a copy that is. An undefined tensor stays
/// undefined.
Tensor contiguous_copy(const Tensor& x, MemoryFormat format = MemoryFormat::contiguous);

/// x itself if it has the dtype, else a copy with the same strides if those are dense. An undefined tensor stays
/// undefined.
Tensor converted(const Tensor& x, DType dtype);

/// Copies x, in memory of the host, to `to` on another device, without a kernel. Both are dense. Counts as an in-place
/// change. Throws Error unless sizes, strides and dtype are the same.
void copy_from_host(const Tensor& x, const Tensor& to);

/// x in float64 and contiguous, for kernels over a few numbers. An undefined tensor stays undefined.
Tensor in_float64(const Tensor& x);

/// x itself if it lies on `device`, else a copy there, with x's strides where those are dense.
Tensor to_device(const Tensor& x, Device device);

}  // namespace norma
