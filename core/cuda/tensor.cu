#include "core/cuda/copies_of_many.h"
#include "core/cuda/number.h"
#include "core/cuda/strided.h"
#include "core/kernels.h"
#include "core/philox.h"

#include <algorithm>
#include <vector>

// The kernels of tensors, and their table.

namespace norma::kernels::NORMA_BACKEND {

// --- sequences -----------------------------------------------------------------------------------------------------

// Kernels for counted and random numbers, and for the search for NaN and Inf.

inline constexpr int kSequenceThreads = 256;

NORMA_KERNEL void count_up(int64_t* x, int64_t count) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    x[i] = i;
  }
}

inline void arange(int64_t* x, int64_t count) {
  if (count > 0) {
    launch(blocks_for(count, kSequenceThreads), kSequenceThreads, 0, current_stream(), count_up, x, count);
  }
}

// --- random: the formulas of core/random.h --------------------------------------------------------------------------

NORMA_DEVICE double double_of(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct Normals {
  double first;
  double second;
};
NORMA_DEVICE Normals normals_of(double u1, double u2) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - u1));
  const double angle = 2.0 * 3.14159265358979323846 * u2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <class T>
NORMA_KERNEL void fill_uniform(T* x, int64_t count, RandomStream stream, T start, T width, T last) {
  constexpr int64_t kPerCounter = sizeof(T) == 4 ? 4 : 2;
  for (int64_t counter = global_thread(); counter * kPerCounter < count; counter += global_threads()) {
    const auto bits = philox(stream.seed, stream.first + static_cast<uint64_t>(counter));
    for (int64_t i = 0; i < kPerCounter && counter * kPerCounter + i < count; ++i) {
      T number;
      if constexpr (sizeof(T) == 4) {
        number = static_cast<float>(bits[static_cast<size_t>(i)] >> 8) * 0x1p-24F;
      } else {
        number = double_of(bits[static_cast<size_t>(2 * i)], bits[static_cast<size_t>(2 * i + 1)]);
      }
      number = start + width * number;
      x[counter * kPerCounter + i] = last < number ? last : number;
    }
  }
}

template <class T>
NORMA_KERNEL void fill_normal(T* x, int64_t count, RandomStream stream, double mean, double std) {
  for (int64_t counter = global_thread(); 2 * counter < count; counter += global_threads()) {
    const auto bits = philox(stream.seed, stream.first + static_cast<uint64_t>(counter));
    const Normals numbers = normals_of(double_of(bits[0], bits[1]), double_of(bits[2], bits[3]));
    x[2 * counter] = static_cast<T>(mean + std * numbers.first);
    if (2 * counter + 1 < count) {
      x[2 * counter + 1] = static_cast<T>(mean + std * numbers.second);
    }
  }
}

template <class T>
NORMA_KERNEL void fill_truncated_normal(T* x, int64_t count, RandomStream stream, double mean, double std, double low,
                                        double high) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    double number;
    uint64_t attempt = 0;  // each is a subsequence of its own
    do {
      const auto bits = philox(stream.seed, stream.first + static_cast<uint64_t>(i), attempt++);
      number = mean + std * normals_of(double_of(bits[0], bits[1]), double_of(bits[2], bits[3])).first;
    } while (!(number >= low && number <= high));
    x[i] = static_cast<T>(number);
  }
}

NORMA_KERNEL void fill_integers(int64_t* x, int64_t count, RandomStream stream, int64_t low, uint64_t range) {
  for (int64_t counter = global_thread(); 2 * counter < count; counter += global_threads()) {
    const auto bits = philox(stream.seed, stream.first + static_cast<uint64_t>(counter));
    for (int64_t i = 0; i < 2 && 2 * counter + i < count; ++i) {
      const uint64_t wide =
          (static_cast<uint64_t>(bits[static_cast<size_t>(2 * i)]) << 32) | bits[static_cast<size_t>(2 * i + 1)];
      x[2 * counter + i] = static_cast<int64_t>(static_cast<uint64_t>(low) + wide % range);
    }
  }
}

/// Blocks for as many counters as `count` numbers take.
inline int64_t counter_blocks(int64_t count, int64_t per_counter) {
  return blocks_for(ceil_div(count, per_counter), kSequenceThreads);
}

inline void uniform(DType dtype, void* x, int64_t count, RandomStream stream, double low, double high) {
  dispatch_floating("uniform_", dtype, [&]<class T>(T) {
    launch(counter_blocks(count, sizeof(T) == 4 ? 4 : 2), kSequenceThreads, 0, current_stream(), fill_uniform<T>,
           static_cast<T*>(x), count, stream, static_cast<T>(low), static_cast<T>(high - low),
           last_of_uniform<T>(low, high));
  });
}

inline void normal(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std) {
  dispatch_floating("normal_", dtype, [&]<class T>(T) {
    launch(counter_blocks(count, 2), kSequenceThreads, 0, current_stream(), fill_normal<T>, static_cast<T*>(x), count,
           stream, mean, std);
  });
}

inline void truncated_normal(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std,
                             double low, double high) {
  dispatch_floating("truncated_normal_", dtype, [&]<class T>(T) {
    launch(counter_blocks(count, 1), kSequenceThreads, 0, current_stream(), fill_truncated_normal<T>,
           static_cast<T*>(x), count, stream, mean, std, low, high);
  });
}

inline void randint(int64_t* x, int64_t count, RandomStream stream, int64_t low, uint64_t range) {
  launch(counter_blocks(count, 2), kSequenceThreads, 0, current_stream(), fill_integers, x, count, stream, low, range);
}

// --- NaN and Inf ------------------------------------------------------------------------------------------------

/// The sizes and strides of a tensor, outermost first, in any order of memory.
struct Places {
  int axes = 0;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};
};

/// first[thread]: the lowest position that a thread has found, or `count`.
template <class S>
NORMA_KERNEL void search_not_finite(Places places, int64_t count, const S* x, int64_t* first) {
  int64_t found = count;
  for (int64_t i = global_thread(); i < count && found == count; i += global_threads()) {
    int64_t rest = i;
    int64_t offset = 0;
    for (int axis = places.axes - 1; axis >= 0; --axis) {
      offset += rest % places.sizes[axis] * places.strides[axis];
      rest /= places.sizes[axis];
    }
    const compute_t<S> value = to_number(x[offset]);
    if (!(value - value == compute_t<S>(0))) {  // Inf - Inf is NaN
      found = i;
    }
  }
  first[global_thread()] = found;
}

inline int64_t find_not_finite(const Sizes& sizes, const Strides& strides, DType dtype, const void* x) {
  return dispatch_any_floating("find_not_finite", dtype, [&]<class S>(S) -> int64_t {
    const int64_t count = sizes.numel();
    if (count == 0) {
      return -1;
    }
    Places places;
    places.axes = static_cast<int>(sizes.size());
    for (int axis = 0; axis < places.axes; ++axis) {
      places.sizes[axis] = sizes[axis];
      places.strides[axis] = strides[axis];
    }
    const int64_t blocks = std::min<int64_t>(blocks_for(count, kSequenceThreads), processors());
    const DeviceBuffer<int64_t> first(blocks * kSequenceThreads);
    launch(blocks, kSequenceThreads, 0, current_stream(), search_not_finite<S>, places, count, static_cast<const S*>(x),
           first.data());
    std::vector<int64_t> on_host(static_cast<size_t>(blocks * kSequenceThreads));
    copy_to_host(on_host.data(), first.data(), on_host.size() * sizeof(int64_t));
    const int64_t lowest = *std::min_element(on_host.begin(), on_host.end());
    return lowest == count ? -1 : lowest;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const TensorKernels NORMA_TABLE(tensor){.copy = copy,
                                                  .add = add,
                                                  .copy_all = copy_all,
                                                  .add_all = add_all,
                                                  .fill = fill,
                                                  .find_not_finite = find_not_finite,
                                                  .arange = arange,
                                                  .uniform = uniform,
                                                  .normal = normal,
                                                  .truncated_normal = truncated_normal,
                                                  .randint = randint};

}  // namespace norma::kernels
