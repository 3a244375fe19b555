#pragma once

#include "core/tensor.h"

#include <utility>

struct DLManagedTensor;  // of dlpack/dlpack.h

namespace norma {

/// x as other frameworks take it (DLPack, https://dmlc.github.io/dlpack): its memory, sizes, strides and dtype, without
/// a copy and without its place on the tape. The memory lives as long as x, its views, or the result, whose `deleter`
/// the taker calls once. Until then the taker's changes of values are seen, but not counted: call
/// Tensor::bump_version() after one, so that backward notices a saved tensor that has changed, and an optimizer that
/// its float32 copy of a 16-bit parameter is old. Work that x waits for on a GPU is done when this returns. The deleter
/// waits for the work of CUDA's default stream; work of the taker in streams that do not wait for that one must be done
/// before. Throws Error for cuda-emulated, whose memory nobody else may touch.
DLManagedTensor* to_dlpack(const Tensor& x);

/// DLPack's type and number of the device that to_dlpack() would name. Waits for nothing.
std::pair<int, int> dlpack_device(const Tensor& x);

/// A tensor on the memory of another framework, without a copy; it takes over `managed` and calls its deleter when the
/// last tensor on that memory is gone and Norma's work on it is done. The other side's changes are seen, but not
/// counted: call Tensor::bump_version() after one. It waits for the work of CUDA's default stream; work on the memory
/// in streams that do not wait for that one must be done. Throws Error, and then leaves `managed` to the caller: for a
/// dtype or a device that Norma does not have, strides below 0, and elements that do not begin at a multiple of their
/// size.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace norma
