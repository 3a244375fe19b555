#include "core/factory.h"

#include "core/copy.h"
#include "core/kernels.h"
#include "core/op_profile.h"
#include "core/strided_loop.h"
#include "core/tape.h"

#include <limits>
#include <numeric>

namespace norma {
namespace {

/// A stream of the next `count` numbers of the generator.
kernels::RandomStream take(Generator& generator, int64_t count) {
  check(generator.origin() == nullptr, "random",
        "generator: expected one without an origin, got that of a recorded step");
  return {.seed = generator.seed(), .first = generator.reserve(static_cast<uint64_t>(count))};
}

/// The number of counters that fill x with `per_counter` random numbers each.
int64_t counters_for(const Tensor& x, int64_t per_counter) {
  return (x.numel() + per_counter - 1) / per_counter;
}

/// Calls fill(pointer, count) on the elements of x in row-major order, in any format.
template <class F>
void fill_dense(const Tensor& x, F&& fill) {
  if (x.is_contiguous()) {
    fill(x.device_pointer(), x.numel());
    x.bump_version();
    return;
  }
  const Tensor dense = empty(x.sizes(), {.dtype = x.dtype(), .device = x.device()});
  fill(dense.device_pointer(), dense.numel());
  copy_into(dense, x);
}

}  // namespace

TensorOptions options_like(const Tensor& x) {
  return {.dtype = x.dtype(), .device = x.device(), .format = x.suggest_memory_format()};
}

namespace {

void check_sizes_of_new(const Sizes& sizes) {
  for (const int64_t size : sizes) {
    if (size < 0) {
      fail("empty", "sizes: expected numbers of at least 0, got {}", sizes);
    }
  }
  checked_numel("empty", sizes);
}

Tensor allocated(const Sizes& sizes, const Strides& strides, const TensorOptions& options) {
  check_available("empty", options.device);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(reach(sizes, strides), static_cast<int64_t>(size_of(options.dtype)), &bytes)) {
    fail("empty", "sizes: expected at most {} bytes, got {} of {}", std::numeric_limits<int64_t>::max(), sizes,
         to_string(options.dtype));
  }
  return {std::make_shared<Storage>(static_cast<size_t>(bytes), options.device), sizes, strides, 0, options.dtype};
}

}  // namespace

Tensor empty_strided(const Sizes& sizes, const Strides& strides, const TensorOptions& options) {
  check_sizes_of_new(sizes);
  return allocated(sizes, strides, options);
}

Tensor empty(const Sizes& sizes, const TensorOptions& options) {
  check_sizes_of_new(sizes);
  return allocated(sizes, strides_for(sizes, options.format), options);
}

Tensor full(const Sizes& sizes, double value, const TensorOptions& options) {
  Tensor x = empty(sizes, options);
  fill_(x, value);
  return x;
}

Tensor zeros(const Sizes& sizes, const TensorOptions& options) {
  return full(sizes, 0, options);
}
Tensor ones(const Sizes& sizes, const TensorOptions& options) {
  return full(sizes, 1, options);
}
Tensor scalar(double value, DType dtype, Device device) {
  return full({}, value, {.dtype = dtype, .device = device});
}

Tensor empty_like(const Tensor& x, MemoryFormat format) {
  const Strides strides =
      format == MemoryFormat::preserve ? preserved_strides(x.sizes(), x.strides()) : strides_for(x.sizes(), format);
  return empty_strided(x.sizes(), strides, {.dtype = x.dtype(), .device = x.device()});
}

Tensor zeros_like(const Tensor& x, MemoryFormat format) {
  Tensor result = empty_like(x, format);
  zero_(result);
  return result;
}

Tensor ones_like(const Tensor& x, MemoryFormat format) {
  Tensor result = empty_like(x, format);
  fill_(result, 1);
  return result;
}

Tensor arange(int64_t count, DType dtype, Device device) {
  Tensor x = empty({count}, {.dtype = DType::int64, .device = device});
  kernels::tensor_kernels.at("arange", device)->arange(x.device_pointer<int64_t>(), count);
  return dtype == DType::int64 ? x : copy_of(x, MemoryFormat::contiguous, dtype);
}

template <class T>
Tensor from_vector(const std::vector<T>& values, const Sizes& sizes, const TensorOptions& options) {
  check(static_cast<int64_t>(values.size()) == sizes.numel(), "from_vector", "values: expected {} for sizes {}, got {}",
        sizes.numel(), sizes, values.size());
  Tensor source = empty(sizes, {.dtype = dtype_of<T>(), .device = kCpu});
  std::copy(values.begin(), values.end(), source.data<T>());
  if (options.dtype == dtype_of<T>() && options.format == MemoryFormat::contiguous) {
    return to_device(source, options.device);
  }
  return to_device(copy_of(source, options.format, options.dtype), options.device);
}

template Tensor from_vector<float>(const std::vector<float>&, const Sizes&, const TensorOptions&);
template Tensor from_vector<double>(const std::vector<double>&, const Sizes&, const TensorOptions&);
template Tensor from_vector<int64_t>(const std::vector<int64_t>&, const Sizes&, const TensorOptions&);
template Tensor from_vector<int32_t>(const std::vector<int32_t>&, const Sizes&, const TensorOptions&);
template Tensor from_vector<uint8_t>(const std::vector<uint8_t>&, const Sizes&, const TensorOptions&);
template Tensor from_vector<bool>(const std::vector<bool>&, const Sizes&, const TensorOptions&);

Tensor rand(const Sizes& sizes, const TensorOptions& options, Generator& generator) {
  Tensor x = empty(sizes, options);
  uniform_(x, 0, 1, generator);
  return x;
}

Tensor randn(const Sizes& sizes, const TensorOptions& options, Generator& generator) {
  Tensor x = empty(sizes, options);
  normal_(x, 0, 1, generator);
  return x;
}

Tensor randint(int64_t low, int64_t high, const Sizes& sizes, const TensorOptions& options, Generator& generator) {
  check(low < high, "randint", "high: expected a number above low {}, got {}", low, high);
  Tensor x = empty(sizes, {.dtype = DType::int64, .device = options.device, .format = options.format});
  const auto range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const auto stream = take(generator, counters_for(x, 2));
  fill_dense(x, [&](void* data, int64_t count) {
    kernels::tensor_kernels.at("randint", x.device())->randint(static_cast<int64_t*>(data), count, stream, low, range);
  });
  return options.dtype == DType::int64 ? x : copy_of(x, MemoryFormat::preserve, options.dtype);
}

Tensor randperm(int64_t count, Generator& generator) {
  check(count >= 0, "randperm", "count: expected a number of at least 0, got {}", count);
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i-- > 1;) {  // Fisher and Yates
    std::swap(order[i], order[generator.below(i + 1)]);
  }
  return from_vector(order, {count});
}

namespace {

/// Filling has no derivative: x must stand outside of every graph.
void check_fill(std::string_view op, const Tensor& x) {
  check_in_place(op, x);
  check(!will_record({x}), op, "x: expected a tensor that takes part in no graph, got the result of an op on one");
}

void check_fillable_at_random(std::string_view op, const Tensor& x) {
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, op, "expected dtype float32 or float64, got {}",
        to_string(x.dtype()));
}

}  // namespace

void fill_(const Tensor& x, double value) {
  check_fill("fill_", x);
  check_holds("fill_", "value", x.dtype(), value);
  if (x.numel() != 0) {
    const OpScope scope([&] { return OpWork{.op = "fill", .bytes = bytes_of(x)}; });
    kernels::tensor_kernels.at("fill_", x.device())
        ->fill(make_strided_loop<1>(x.sizes(), {x.strides()}), x.dtype(), x.device_pointer(), value);
  }
  x.bump_version();
}

void zero_(const Tensor& x) {
  fill_(x, 0);
}

void uniform_(const Tensor& x, double low, double high, Generator& generator) {
  check_fill("uniform_", x);
  check_fillable_at_random("uniform_", x);
  check(low <= high, "uniform_", "high: expected a number of at least low {}, got {}", low, high);
  const double largest =
      x.dtype() == DType::float32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  check(low >= -largest && high <= largest && high - low <= largest, "uniform_",
        "expected low, high and high - low as finite numbers of {}, got low {} and high {}", to_string(x.dtype()), low,
        high);
  const auto stream = take(generator, counters_for(x, x.dtype() == DType::float32 ? 4 : 2));
  fill_dense(x, [&](void* data, int64_t count) {
    kernels::tensor_kernels.at("uniform_", x.device())->uniform(x.dtype(), data, count, stream, low, high);
  });
}

void normal_(const Tensor& x, double mean, double std, Generator& generator) {
  check_fill("normal_", x);
  check_fillable_at_random("normal_", x);
  const auto stream = take(generator, counters_for(x, 2));
  fill_dense(x, [&](void* data, int64_t count) {
    kernels::tensor_kernels.at("normal_", x.device())->normal(x.dtype(), data, count, stream, mean, std);
  });
}

void truncated_normal_(const Tensor& x, double mean, double std, double low, double high, Generator& generator) {
  check(low < high, "truncated_normal_", "high: expected a number above low {}, got {}", low, high);
  check_fill("truncated_normal_", x);
  check_fillable_at_random("truncated_normal_", x);
  const auto stream = take(generator, x.numel());
  fill_dense(x, [&](void* data, int64_t count) {
    kernels::tensor_kernels.at("truncated_normal_", x.device())
        ->truncated_normal(x.dtype(), data, count, stream, mean, std, low, high);
  });
}

}  // namespace norma
