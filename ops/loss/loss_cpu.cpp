#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/loss/loss_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "core/strided_loop.h"
#include "ops/loss/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
namespace {

using namespace simd::HWY_NAMESPACE;
using cpu::Scratch;

// Each row is worked on in dense memory, so that its bits do not depend on the strides.

/// The row itself if it is dense, else its copy in `copy`.
template <class T>
const T* dense_row(int64_t count, const T* x, int64_t step, T* copy) {
  if (step == 1) {
    return x;
  }
  for (int64_t i = 0; i < count; ++i) {
    copy[i] = x[i * step];
  }
  return copy;
}

/// The memory for a row until put_row() brings it to its place.
template <class T>
T* row_to_write(T* y, int64_t step, T* buffer) {
  return step == 1 ? y : buffer;
}
template <class T>
void put_row(int64_t count, const T* row, T* y, int64_t step) {
  for (int64_t i = 0; row != y && i < count; ++i) {
    y[i * step] = row[i];
  }
}

/// The largest number that is not NaN.
template <class T>
T largest(int64_t count, const T* x) {
  const Lanes<T> least = broadcast(-std::numeric_limits<T>::infinity());
  Lanes<T> most = least;
  for_each_lanes<T>(count, [&](int64_t i, auto part) HWY_ATTR {
    Lanes<T> value = load(x + i, part);
    if constexpr (std::is_same_v<decltype(part), First>) {
      value = select(first_lanes<T>(part.count), value, least);
    }
    most = select(most < value, value, most);
  });
  T lanes[kLanes<T>];
  store(static_cast<T*>(lanes), most, Whole{});
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

template <class T>
double sum_of(int64_t count, const T* x) {
  DoubleSum<T> sum;
  for_each_lanes<T>(count, [&](int64_t i, auto part) HWY_ATTR { sum.lanes += to_double(load(x + i, part)); });
  return sum.total();
}

/// log(sum(exp(x))) = max + log(sum(exp(x - max))). `work` holds exp(x - max) afterwards.
template <class T>
struct LogSum {
  T max;
  double rest;  ///< log(sum(exp(x - max)))

  LogSum(int64_t count, const T* x, T* work) : max(largest(count, x)) {
    DoubleSum<T> sum;
    for_each_lanes<T>(count, [&](int64_t i, auto part) HWY_ATTR {
      const Lanes<T> e = exp(load(x + i, part) - max);
      store(work + i, e, part);
      sum.lanes += to_double(keep(e, part));
    });
    rest = std::log(sum.total());
  }
};

int64_t row_grain(int64_t length) {
  return std::max<int64_t>(kPointwiseGrain / std::max<int64_t>(length, 1), 1);
}

template <class T>
void softmax_rows(const SoftmaxShape& shape, bool logarithm, const T* x, T* y) {
  const int64_t length = shape.length;
  const auto loop = make_strided_loop<2>(shape.sizes, {shape.strides[0], shape.strides[1]});
  const auto body = [&](const std::array<int64_t, 2>& offsets, int64_t count, const std::array<int64_t, 2>& strides) {
    Scratch scratch;
    T* copy = scratch.take<T>(length);
    T* buffer = scratch.take<T>(length);
    for (int64_t r = 0; r < count; ++r) {
      const T* row = dense_row(length, x + offsets[0] + r * strides[0], shape.steps[0], copy);
      T* to = y + offsets[1] + r * strides[1];
      T* out = row_to_write(to, shape.steps[1], buffer);
      const LogSum<T> log_sum(length, row, out);
      if (logarithm) {
        const T rest = static_cast<T>(log_sum.rest);
        for_each_lanes<T>(length, [&](int64_t i, auto part)
                                      HWY_ATTR { store(out + i, load(row + i, part) - log_sum.max - rest, part); });
      } else {
        const T factor = static_cast<T>(std::exp(-log_sum.rest));
        for_each_lanes<T>(length,
                          [&](int64_t i, auto part) HWY_ATTR { store(out + i, load(out + i, part) * factor, part); });
      }
      put_row(length, out, to, shape.steps[1]);
    }
  };
  for_each_run(loop, body, row_grain(length));
}

// softmax:      dx = y · (dy - sum(dy · y))
// log_softmax:  dx = dy - exp(y) · sum(dy)
template <class T>
void softmax_backward_rows(const SoftmaxShape& shape, bool logarithm, const T* y, const T* dy, T* dx) {
  const int64_t length = shape.length;
  const auto loop = make_strided_loop<3>(shape.sizes, {shape.strides[0], shape.strides[1], shape.strides[2]});
  const auto body = [&](const std::array<int64_t, 3>& offsets, int64_t count, const std::array<int64_t, 3>& strides) {
    Scratch scratch;
    T* value_copy = scratch.take<T>(length);
    T* gradient_copy = scratch.take<T>(length);
    T* buffer = scratch.take<T>(length);
    for (int64_t r = 0; r < count; ++r) {
      const T* value = dense_row(length, y + offsets[0] + r * strides[0], shape.steps[0], value_copy);
      const T* gradient = dense_row(length, dy + offsets[1] + r * strides[1], shape.steps[1], gradient_copy);
      T* to = dx + offsets[2] + r * strides[2];
      T* out = row_to_write(to, shape.steps[2], buffer);
      if (logarithm) {
        const T sum = static_cast<T>(sum_of(length, gradient));
        for_each_lanes<T>(length, [&](int64_t i, auto part) HWY_ATTR {
          store(out + i, load(gradient + i, part) - exp(load(value + i, part)) * sum, part);
        });
      } else {
        DoubleSum<T> products;
        for_each_lanes<T>(length, [&](int64_t i, auto part) HWY_ATTR {
          products.lanes += to_double(load(gradient + i, part) * load(value + i, part));
        });
        const T sum = static_cast<T>(products.total());
        for_each_lanes<T>(length, [&](int64_t i, auto part) HWY_ATTR {
          store(out + i, load(value + i, part) * (load(gradient + i, part) - sum), part);
        });
      }
      put_row(length, out, to, shape.steps[2]);
    }
  };
  for_each_run(loop, body, row_grain(length));
}

/// True iff the row does not count.
bool is_ignored(const CrossEntropyShape& shape, bool class_numbers, const void* target, int64_t row) {
  return class_numbers && static_cast<const int64_t*>(target)[row] == shape.ignore_index;
}

double weight_of(const CrossEntropyShape& shape, int64_t label) {
  return shape.class_weights == nullptr ? 1 : shape.class_weights[label];
}

/// The class weights as T; null if there are none.
template <class T>
const T* class_weights(const CrossEntropyShape& shape, Scratch& scratch) {
  if (shape.class_weights == nullptr) {
    return nullptr;
  }
  T* weights = scratch.take<T>(shape.classes);
  std::transform(shape.class_weights, shape.class_weights + shape.classes, weights,
                 [](double weight) { return static_cast<T>(weight); });
  return weights;
}

/// q, the smoothed and weighted target of one row: ((1 - smoothing) · target + smoothing / classes) · class weight.
template <class T>
void smoothed_target(const CrossEntropyShape& shape, bool class_numbers, const void* target, int64_t row,
                     const T* weights, T* q) {
  const T* plain = q;
  if (class_numbers) {
    const int64_t label = static_cast<const int64_t*>(target)[row];
    const bool weighted = weights != nullptr && shape.smoothing == 0;
    std::fill_n(q, shape.classes, T(0));
    q[label] = weighted ? weights[label] : T(1);
    if (weighted) {  // the other classes' weights have no part: they may be infinite
      return;
    }
  } else {
    plain = dense_row(shape.classes, static_cast<const T*>(target) + row * shape.target_row, shape.target_step, q);
  }
  const T share = static_cast<T>(1 - shape.smoothing);
  const T floor = static_cast<T>(shape.smoothing / static_cast<double>(shape.classes));
  for_each_lanes<T>(shape.classes, [&](int64_t i, auto part) HWY_ATTR {
    Lanes<T> value = load(plain + i, part) * share + floor;
    if (weights != nullptr) {
      value *= load(weights + i, part);
    }
    store(q + i, value, part);
  });
}

template <class T>
void cross_entropy_rows(const CrossEntropyShape& shape, bool class_numbers, const T* x, const void* target,
                        double* loss, double* log_sum, double* counts) {
  parallel_for(0, shape.rows, row_grain(shape.classes), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const T* weights = class_weights<T>(shape, scratch);
    T* copy = scratch.take<T>(shape.classes);
    T* work = scratch.take<T>(shape.classes);
    for (int64_t row = begin; row < end; ++row) {
      if (is_ignored(shape, class_numbers, target, row)) {
        loss[row] = log_sum[row] = counts[row] = 0;
        continue;
      }
      counts[row] = class_numbers ? weight_of(shape, static_cast<const int64_t*>(target)[row]) : 1;
      const T* logits = dense_row(shape.classes, x + row * shape.x_row, shape.x_step, copy);
      const LogSum<T> sum(shape.classes, logits, work);
      log_sum[row] = static_cast<double>(sum.max) + sum.rest;
      if (class_numbers && shape.smoothing == 0) {
        // The other classes' logits have no part: they may be infinite.
        const auto label = static_cast<const int64_t*>(target)[row];
        loss[row] = counts[row] * (log_sum[row] - static_cast<double>(logits[label]));
        continue;
      }
      // loss = sum of q · (log_sum - x). Lanes after the last class are 0 in q, and log_sum is finite or NaN.
      smoothed_target(shape, class_numbers, target, row, weights, work);
      DoubleSum<T> total;
      for_each_lanes<T>(shape.classes, [&](int64_t i, auto part) HWY_ATTR {
        total.lanes += to_double(load(work + i, part)) * (log_sum[row] - to_double(load(logits + i, part)));
      });
      loss[row] = total.total();
    }
  });
}

// dx = dy · (softmax(x) · sum(q) - q),  dtarget = dy · (1 - smoothing) · class weight · (log_sum - x)
template <class T>
void cross_entropy_backward_rows(const CrossEntropyShape& shape, bool class_numbers, const T* x, const void* target,
                                 const double* log_sum, const T* dy, int64_t dy_step, const double* divisor, T* dx,
                                 T* dtarget) {
  const double scale = divisor == nullptr ? 1 : *divisor == 0 ? 0 : 1 / *divisor;
  parallel_for(0, shape.rows, row_grain(shape.classes), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const T* weights = class_weights<T>(shape, scratch);
    T* copy = scratch.take<T>(shape.classes);
    T* q = scratch.take<T>(shape.classes);
    for (int64_t row = begin; row < end; ++row) {
      if (is_ignored(shape, class_numbers, target, row)) {
        std::fill_n(dx + row * shape.classes, shape.classes, T(0));  // class numbers have no gradient: dx is there
        continue;
      }
      const double weight = scale * static_cast<double>(dy[row * dy_step]);
      const T* logits = dense_row(shape.classes, x + row * shape.x_row, shape.x_step, copy);
      const auto below = [&](int64_t i, auto part)
                             HWY_ATTR { return round_to<T>(to_double(load(logits + i, part)) - log_sum[row]); };
      if (dtarget != nullptr) {
        T* gradient = dtarget + row * shape.classes;
        const T factor = static_cast<T>(weight * (shape.smoothing - 1));
        for_each_lanes<T>(shape.classes, [&](int64_t i, auto part) HWY_ATTR {
          Lanes<T> value = below(i, part) * factor;
          if (weights != nullptr) {
            value *= load(weights + i, part);
          }
          store(gradient + i, value, part);
        });
      }
      if (dx != nullptr) {
        smoothed_target(shape, class_numbers, target, row, weights, q);
        const double total = class_numbers && weights == nullptr ? 1 : sum_of(shape.classes, q);
        T* gradient = dx + row * shape.classes;
        for_each_lanes<T>(shape.classes, [&](int64_t i, auto part) HWY_ATTR {
          const Lanes<T> softmax = exp(below(i, part));
          const Lanes<T> difference = softmax * static_cast<T>(total) - load(q + i, part);
          store(gradient + i, difference * static_cast<T>(weight), part);
        });
      }
    }
  });
}

int64_t find_no_class(const CrossEntropyShape& shape, const int64_t* target) {
  const auto* const found = std::find_if(target, target + shape.rows, [&](int64_t label) {
    return label != shape.ignore_index && (label < 0 || label >= shape.classes);
  });
  return found == target + shape.rows ? -1 : found - target;
}

void softmax(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* x, void* y) {
  dispatch_floating("softmax", dtype,
                    [&]<class T>(T) { softmax_rows(shape, logarithm, static_cast<const T*>(x), static_cast<T*>(y)); });
}

void softmax_backward(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* y, const void* dy, void* dx) {
  dispatch_floating("softmax", dtype, [&]<class T>(T) {
    softmax_backward_rows(shape, logarithm, static_cast<const T*>(y), static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

void cross_entropy(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x, const void* target,
                   double* loss, double* log_sum, double* counts) {
  dispatch_floating("cross_entropy", dtype, [&]<class T>(T) {
    cross_entropy_rows(shape, class_numbers, static_cast<const T*>(x), target, loss, log_sum, counts);
  });
}

void cross_entropy_backward(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x,
                            const void* target, const double* log_sum, const void* dy, int64_t dy_step,
                            const double* divisor, void* dx, void* dtarget) {
  dispatch_floating("cross_entropy", dtype, [&]<class T>(T) {
    cross_entropy_backward_rows(shape, class_numbers, static_cast<const T*>(x), target, log_sum,
                                static_cast<const T*>(dy), dy_step, divisor, static_cast<T*>(dx),
                                static_cast<T*>(dtarget));
  });
}

}  // namespace

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

constinit const LossKernels loss_cpu{.find_no_class = NORMA_SIMD_CALL(find_no_class),
                                     .softmax = NORMA_SIMD_CALL(softmax),
                                     .softmax_backward = NORMA_SIMD_CALL(softmax_backward),
                                     .cross_entropy = NORMA_SIMD_CALL(cross_entropy),
                                     .cross_entropy_backward = NORMA_SIMD_CALL(cross_entropy_backward)};

}  // namespace norma::kernels
#endif
