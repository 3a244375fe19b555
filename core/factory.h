#pragma once

#include "core/random.h"
#include "core/tensor.h"

#include <vector>

namespace norma {

/// Properties of a new tensor.
struct TensorOptions {
  DType dtype = DType::float32;
  Device device = default_device();
  MemoryFormat format = MemoryFormat::contiguous;
};

/// The dtype, device and suggested format of x.
TensorOptions options_like(const Tensor& x);

// All functions below throw Error when elements or bytes cannot be counted in 64 bits, OutOfMemory when there is no
// room.

/// Elements are uninitialised.
Tensor empty(const Sizes& sizes, const TensorOptions& options = {});
Tensor zeros(const Sizes& sizes, const TensorOptions& options = {});
Tensor ones(const Sizes& sizes, const TensorOptions& options = {});
Tensor full(const Sizes& sizes, double value, const TensorOptions& options = {});
/// A tensor of rank 0.
Tensor scalar(double value, DType dtype = DType::float32, Device device = default_device());
/// An uninitialised tensor with exactly these strides (in elements).
Tensor empty_strided(const Sizes& sizes, const Strides& strides, const TensorOptions& options = {});

/// Tensors with the sizes, dtype and device of x. Format `preserve` keeps x's strides when those are dense, else the
/// order of its axes (see preserved_strides).
Tensor empty_like(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);
Tensor zeros_like(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);
Tensor ones_like(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);

/// [0, 1, …, count - 1]
Tensor arange(int64_t count, DType dtype = DType::int64, Device device = default_device());

/// Copies `values`, given in row-major order, to options.device. Throws Error unless there are sizes.numel() of them.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Sizes& sizes,
                   const TensorOptions& options = {.dtype = dtype_of<T>()});

/// Independent float32 or float64 numbers, uniform in [0, 1) (rand) or standard normal (randn). Element i (row-major)
/// depends only on the generator's state, not on the format or the number of threads. Throws Error for another dtype.
Tensor rand(const Sizes& sizes, const TensorOptions& options = {}, Generator& generator = default_generator());
Tensor randn(const Sizes& sizes, const TensorOptions& options = {}, Generator& generator = default_generator());
/// Integers in [low, high), int64 by default. Throws Error unless low < high.
Tensor randint(int64_t low, int64_t high, const Sizes& sizes, const TensorOptions& options = {.dtype = DType::int64},
               Generator& generator = default_generator());
/// A random order of 0 … count - 1, int64, on the default device.
Tensor randperm(int64_t count, Generator& generator = default_generator());

/// Fill x in place (counted as an in-place change). Throw Error for a tensor that takes part in a graph. Random numbers
/// fill float32 and float64 only, and other dtypes are an Error.
void fill_(const Tensor& x, double value);
void zero_(const Tensor& x);
void uniform_(const Tensor& x, double low, double high, Generator& generator = default_generator());
void normal_(const Tensor& x, double mean, double std, Generator& generator = default_generator());
/// Fills x with normal numbers, drawn again while outside [low, high]. Throws Error unless low < high.
void truncated_normal_(const Tensor& x, double mean, double std, double low, double high,
                       Generator& generator = default_generator());

}  // namespace norma
