#pragma once

#include "core/tensor.h"

struct DLManagedTensor;  // of dlpack/dlpack.h

namespace norma {

/// x as other frameworks take it (DLPack, https://dmlc.github.io/dlpack): its memory, sizes, strides and dtype, without
/// a copy and without its place on the tape. The memory lives as long as x, its views, or the result, whose `deleter`
/// the taker calls once. Work that x waits for on a GPU is done when this returns. Throws Error for cuda-emulated,
/// whose memory nobody else may touch.
DLManagedTensor* to_dlpack(const Tensor& x);

/// A tensor on the memory of another framework, without a copy; it takes over `managed` and calls its deleter when the
/// last tensor on that memory is gone. The other side's changes are seen, but not counted: call Tensor::bump_version()
/// after one. Work on a GPU that the memory waits for must be done. Throws Error, and then leaves `managed` to the
/// caller: for a dtype or a device that Norma does not have, strides below 0, and elements that do not begin at a
/// multiple of their size.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace norma
