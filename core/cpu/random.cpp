#include "core/random.h"
#include "core/cpu/tensor_kernels.h"
#include "core/parallel.h"

#include <algorithm>
#include <array>

namespace norma::kernels {
namespace {

/// Fills x with numbers; `make` makes `PerCounter` of them from each number of the stream.
template <class T, size_t PerCounter, class F>
void fill_random(T* x, int64_t count, RandomStream stream, F&& make) {
  const int64_t counters = (count + int64_t{PerCounter} - 1) / int64_t{PerCounter};
  parallel_for(0, counters, kPointwiseGrain / 32, [&](int64_t begin, int64_t end) {
    for (int64_t counter = begin; counter < end; ++counter) {
      const std::array<T, PerCounter> numbers =
          make(philox(stream.seed, stream.first + static_cast<uint64_t>(counter)));
      for (int64_t i = 0; i < int64_t{PerCounter} && counter * int64_t{PerCounter} + i < count; ++i) {
        x[counter * int64_t{PerCounter} + i] = numbers[static_cast<size_t>(i)];
      }
    }
  });
}

}  // namespace

void cpu::uniform(DType dtype, void* x, int64_t count, RandomStream stream, double low, double high) {
  dispatch_floating("uniform_", dtype, [&]<class T>(T) {
    const T start = static_cast<T>(low);
    const T width = static_cast<T>(high - low);
    const T last = last_of_uniform<T>(low, high);
    const auto number = [=](T share) { return std::min(start + width * share, last); };
    if constexpr (std::is_same_v<T, float>) {
      fill_random<T, 4>(static_cast<T*>(x), count, stream, [=](const std::array<uint32_t, 4>& bits) {
        return std::array<T, 4>{number(uniform_float(bits[0])), number(uniform_float(bits[1])),
                                number(uniform_float(bits[2])), number(uniform_float(bits[3]))};
      });
    } else {
      fill_random<T, 2>(static_cast<T*>(x), count, stream, [=](const std::array<uint32_t, 4>& bits) {
        return std::array<T, 2>{number(uniform_double(bits[0], bits[1])), number(uniform_double(bits[2], bits[3]))};
      });
    }
  });
}

void cpu::normal(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std) {
  dispatch_floating("normal_", dtype, [&]<class T>(T) {
    fill_random<T, 2>(static_cast<T*>(x), count, stream, [=](const std::array<uint32_t, 4>& bits) {
      const auto numbers = box_muller(uniform_double(bits[0], bits[1]), uniform_double(bits[2], bits[3]));
      return std::array<T, 2>{static_cast<T>(mean + std * numbers[0]), static_cast<T>(mean + std * numbers[1])};
    });
  });
}

void cpu::truncated_normal(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std,
                           double low, double high) {
  dispatch_floating("truncated_normal_", dtype, [&]<class T>(T) {
    T* data = static_cast<T*>(x);
    parallel_for(0, count, kPointwiseGrain / 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (uint64_t attempt = 0;; ++attempt) {  // each attempt is a subsequence of its own
          const auto bits = philox(stream.seed, stream.first + static_cast<uint64_t>(i), attempt);
          const double number =
              mean + std * box_muller(uniform_double(bits[0], bits[1]), uniform_double(bits[2], bits[3]))[0];
          if (number >= low && number <= high) {
            data[i] = static_cast<T>(number);
            break;
          }
        }
      }
    });
  });
}

void cpu::randint(int64_t* x, int64_t count, RandomStream stream, int64_t low, uint64_t range) {
  fill_random<int64_t, 2>(x, count, stream, [&](const std::array<uint32_t, 4>& bits) {
    auto number = [&](uint32_t upper, uint32_t lower) {
      const uint64_t wide = (static_cast<uint64_t>(upper) << 32) | lower;
      return static_cast<int64_t>(static_cast<uint64_t>(low) + wide % range);
    };
    return std::array{number(bits[0], bits[1]), number(bits[2], bits[3])};
  });
}

}  // namespace norma::kernels
