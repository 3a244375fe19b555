#include "core/factory.h"

#include "core/copy.h"
#include "core/op_profile.h"
#include "core/strided_loop.h"
#include "core/tape.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace norma {
namespace {

/// Fills x with f(i) for the row-major element number i, in any format.
template <class T, class F>
void fill_by_index(const Tensor& x, F&& f) {
  const Tensor target = x.is_contiguous() ? x : empty(x.sizes(), {.dtype = x.dtype(), .device = x.device()});
  T* data = target.data<T>();
  parallel_for(0, x.numel(), kPointwiseGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      data[i] = f(i);
    }
  });
  if (target.is_same(x)) {
    x.bump_version();
  } else {
    copy_into(target, x);
  }
}

/// Fills x with numbers made `PerCounter` at a time from one Philox counter.
template <class T, size_t PerCounter, class F>
void fill_random(const Tensor& x, Generator& generator, F&& make) {
  const auto counters = static_cast<uint64_t>((x.numel() + int64_t{PerCounter} - 1) / int64_t{PerCounter});
  const uint64_t first = generator.reserve(counters);
  const uint64_t seed = generator.seed();
  const Tensor target = x.is_contiguous() ? x : empty(x.sizes(), {.dtype = x.dtype(), .device = x.device()});
  T* data = target.data<T>();
  const int64_t count = x.numel();
  parallel_for(0, static_cast<int64_t>(counters), kPointwiseGrain / 32, [&](int64_t begin, int64_t end) {
    for (int64_t counter = begin; counter < end; ++counter) {
      const std::array<T, PerCounter> numbers = make(philox(seed, first + static_cast<uint64_t>(counter)));
      for (int64_t i = 0; i < int64_t{PerCounter} && counter * int64_t{PerCounter} + i < count; ++i) {
        data[counter * int64_t{PerCounter} + i] = numbers[static_cast<size_t>(i)];
      }
    }
  });
  if (target.is_same(x)) {
    x.bump_version();
  } else {
    copy_into(target, x);
  }
}

}  // namespace

TensorOptions options_like(const Tensor& x) {
  return {.dtype = x.dtype(), .device = x.device(), .format = x.suggest_memory_format()};
}

namespace {

void check_sizes_of_new(const Sizes& sizes) {
  for (const int64_t size : sizes) {
    if (size < 0) {
      fail("empty", "sizes: expected numbers of at least 0, got {}", to_string(sizes));
    }
  }
  checked_numel("empty", sizes);
}

Tensor allocated(const Sizes& sizes, const Strides& strides, const TensorOptions& options) {
  check_available("empty", options.device);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(reach(sizes, strides), static_cast<int64_t>(size_of(options.dtype)), &bytes)) {
    fail("empty", "sizes: expected at most {} bytes, got {} of {}", std::numeric_limits<int64_t>::max(),
         to_string(sizes), to_string(options.dtype));
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
Tensor scalar(double value, DType dtype) {
  return full({}, value, {.dtype = dtype});
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

Tensor arange(int64_t count, DType dtype) {
  Tensor x = empty({count}, {.dtype = DType::int64});
  std::iota(x.data<int64_t>(), x.data<int64_t>() + count, int64_t{0});
  return dtype == DType::int64 ? x : copy_of(x, MemoryFormat::contiguous, dtype);
}

template <class T>
Tensor from_vector(const std::vector<T>& values, const Sizes& sizes, const TensorOptions& options) {
  check(static_cast<int64_t>(values.size()) == sizes.numel(), "from_vector", "values: expected {} for sizes {}, got {}",
        sizes.numel(), to_string(sizes), values.size());
  Tensor source = empty(sizes, {.dtype = dtype_of<T>()});
  std::copy(values.begin(), values.end(), source.data<T>());
  if (options.dtype == dtype_of<T>() && options.format == MemoryFormat::contiguous) {
    return source;
  }
  return copy_of(source, options.format, options.dtype);
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
  fill_random<int64_t, 2>(x, generator, [&](const std::array<uint32_t, 4>& bits) {
    auto number = [&](uint32_t upper, uint32_t lower) {
      const uint64_t wide = (static_cast<uint64_t>(upper) << 32) | lower;
      return static_cast<int64_t>(static_cast<uint64_t>(low) + wide % range);
    };
    return std::array{number(bits[0], bits[1]), number(bits[2], bits[3])};
  });
  return options.dtype == DType::int64 ? x : copy_of(x, MemoryFormat::preserve, options.dtype);
}

Tensor randperm(int64_t count, Generator& generator) {
  Tensor x = arange(count);
  auto* order = x.data<int64_t>();
  for (int64_t i = count - 1; i > 0; --i) {  // Fisher and Yates
    std::swap(order[i], order[generator.below(static_cast<uint64_t>(i) + 1)]);
  }
  return x;
}

namespace {

/// Filling has no derivative: x must stand outside of every graph.
void check_fill(std::string_view op, const Tensor& x) {
  check_in_place(op, x);
  check(!will_record({x}), op, "x: expected a tensor that takes part in no graph, got the result of an op on one");
}

}  // namespace

void fill_(const Tensor& x, double value) {
  check_fill("fill_", x);
  dispatch_all(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* data = x.data<T>();
    const T element = [&] {
      if constexpr (std::is_same_v<T, bool>) {
        return value != 0;
      } else {
        return static_cast<T>(static_cast<compute_t<T>>(value));
      }
    }();
    if (x.numel() == 0) {
      return;
    }
    const OpScope scope([&] { return OpWork{.op = "fill", .bytes = bytes_of(x)}; });
    for_each_run(make_strided_loop<1>(x.sizes(), {x.strides()}),
                 [&](const auto& offsets, int64_t count, const auto& strides) {
                   T* first = data + offsets[0];
                   if (strides[0] == 1) {
                     std::fill_n(first, count, element);
                   } else {
                     for (int64_t i = 0; i < count; ++i) {
                       first[i * strides[0]] = element;
                     }
                   }
                 });
  });
  x.bump_version();
}

void zero_(const Tensor& x) {
  fill_(x, 0);
}

void uniform_(const Tensor& x, double low, double high, Generator& generator) {
  check_fill("uniform_", x);
  dispatch_floating("uniform_", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T start = static_cast<T>(low);
    const T width = static_cast<T>(high - low);
    if constexpr (std::is_same_v<T, float>) {
      fill_random<T, 4>(x, generator, [=](const std::array<uint32_t, 4>& bits) {
        return std::array<T, 4>{start + width * uniform_float(bits[0]), start + width * uniform_float(bits[1]),
                                start + width * uniform_float(bits[2]), start + width * uniform_float(bits[3])};
      });
    } else {
      fill_random<T, 2>(x, generator, [=](const std::array<uint32_t, 4>& bits) {
        return std::array<T, 2>{start + width * uniform_double(bits[0], bits[1]),
                                start + width * uniform_double(bits[2], bits[3])};
      });
    }
  });
}

void normal_(const Tensor& x, double mean, double std, Generator& generator) {
  check_fill("normal_", x);
  dispatch_floating("normal_", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    fill_random<T, 2>(x, generator, [=](const std::array<uint32_t, 4>& bits) {
      const auto numbers = box_muller(uniform_double(bits[0], bits[1]), uniform_double(bits[2], bits[3]));
      return std::array<T, 2>{static_cast<T>(mean + std * numbers[0]), static_cast<T>(mean + std * numbers[1])};
    });
  });
}

void truncated_normal_(const Tensor& x, double mean, double std, double low, double high, Generator& generator) {
  check(low < high, "truncated_normal_", "high: expected a number above low {}, got {}", low, high);
  check_fill("truncated_normal_", x);
  const uint64_t first = generator.reserve(static_cast<uint64_t>(x.numel()));
  const uint64_t seed = generator.seed();
  dispatch_floating("truncated_normal_", x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    fill_by_index<T>(x, [&](int64_t i) {
      for (uint64_t attempt = 0;; ++attempt) {  // each attempt is a subsequence of its own
        const auto bits = philox(seed, first + static_cast<uint64_t>(i), attempt);
        const double number =
            mean + std * box_muller(uniform_double(bits[0], bits[1]), uniform_double(bits[2], bits[3]))[0];
        if (number >= low && number <= high) {
          return static_cast<T>(number);
        }
      }
    });
  });
}

}  // namespace norma
