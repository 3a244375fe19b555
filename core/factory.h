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

// The functions that make a tensor throw Error when elements or bytes cannot be counted in 64 bits, and OutOfMemory
// when there is no room.

/// A tensor whose elements are uninitialized.
Tensor empty(const Sizes& sizes, const TensorOptions& options = {});
/// A tensor of zeros.
Tensor zeros(const Sizes& sizes, const TensorOptions& options = {});
/// A tensor of ones.
Tensor ones(const Sizes& sizes, const TensorOptions& options = {});
/// A tensor whose elements are all `value`.
Tensor full(const Sizes& sizes, double value, const TensorOptions& options = {});
/// A tensor of rank 0.
Tensor scalar(double value, DType dtype = DType::float32, Device device = default_device());
/// An uninitialized tensor with exactly these strides (in elements).
Tensor empty_strided(const Sizes& sizes, const Strides& strides, const TensorOptions& options = {});

/// An uninitialized tensor with the sizes, dtype and device of x. Format `preserve` keeps x's strides when those are
/// dense, else the order of its axes (see preserved_strides).
Tensor empty_like(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);
/// Zeros in a tensor of empty_like().
Tensor zeros_like(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);
/// Ones in a tensor of empty_like().
Tensor ones_like(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);

/// [0, 1, …, count - 1]
Tensor arange(int64_t count, DType dtype = DType::int64, Device device = default_device());

/// Copies `values`, given in row-major order, to options.device. Throws Error unless there are sizes.numel() of them.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Sizes& sizes,
                   const TensorOptions& options = {.dtype = dtype_of<T>()});

/// Independent float32 or float64 numbers, uniform in [0, 1). Element i (row-major) depends only on the generator's
/// state, not on the format or the number of threads. Throws Error for another dtype.
Tensor rand(const Sizes& sizes, const TensorOptions& options = {}, Generator& generator = default_generator());
/// Independent standard normal numbers; all else is as in rand().
Tensor randn(const Sizes& sizes, const TensorOptions& options = {}, Generator& generator = default_generator());
/// Integers in [low, high), int64 by default. Throws Error unless low < high.
Tensor randint(int64_t low, int64_t high, const Sizes& sizes, const TensorOptions& options = {.dtype = DType::int64},
               Generator& generator = default_generator());
/// A random order of 0 … count - 1, int64, on the default device.
Tensor randperm(int64_t count, Generator& generator = default_generator());

/// Sets every element of x to `value` (counted as an in-place change). Integers cut its fraction off. Throws Error for
/// a tensor that takes part in a graph, and for a number outside the range of an integer dtype (also NaN).
void fill_(const Tensor& x, double value);
/// fill_() with 0.
void zero_(const Tensor& x);
/// Fills x, float32 or float64, with independent numbers, uniform in [low, high). Otherwise as fill_(). Throws Error if
/// low is above high, and unless low, high and high - low are finite numbers of x's dtype.
void uniform_(const Tensor& x, double low, double high, Generator& generator = default_generator());
/// Fills x, float32 or float64, with independent normal numbers. Otherwise as fill_().
void normal_(const Tensor& x, double mean, double std, Generator& generator = default_generator());
/// Fills x as normal_(), but draws a number again while it lies outside [low, high]. Throws Error unless low < high.
void truncated_normal_(const Tensor& x, double mean, double std, double low, double high,
                       Generator& generator = default_generator());

}  // namespace norma
