#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/loss/loss_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/strided_loop.h"
#include "ops/loss/kernels.h"
#include "ops/pointwise/vector_math.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
namespace {

/// One row in dense, aligned memory: Eigen then takes the same vector path for every row, whatever the strides.
template <class T>
using Row = Eigen::Array<T, Eigen::Dynamic, 1>;

template <class T>
void gather(const T* x, int64_t step, Row<T>& row) {
  for (int64_t i = 0; i < row.size(); ++i) {
    row[i] = x[i * step];
  }
}

template <class T>
double sum_of(const Row<T>& row) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < row.size(); ++i) {
    sum += static_cast<double>(row[i]);
  }
  return sum;
}

/// exp(row), in place. Eigen's is not 0 at -inf, and has other bits in lanes than in what is left over.
template <class T>
void exponentials(Row<T>& row) {
  T* values = row.data();
  const int64_t count = row.size();
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    values[i] = vector_math::exp(values[i]);
  }
}

/// log(sum(exp(x))) = max + log(sum(exp(x - max))). `work` holds exp(x - max) afterwards.
template <class T>
struct LogSum {
  T max;
  double rest;  ///< log(sum(exp(x - max)))

  LogSum(const Row<T>& x, Row<T>& work) : max(x.maxCoeff()) {
    work = x - max;
    exponentials(work);
    rest = std::log(sum_of(work));
  }
};

int64_t row_grain(int64_t length) {
  return std::max<int64_t>(kPointwiseGrain / std::max<int64_t>(length, 1), 1);
}

template <class T>
void softmax_rows(const SoftmaxShape& shape, bool logarithm, const T* x, T* y) {
  const auto loop = make_strided_loop<2>(shape.sizes, {shape.strides[0], shape.strides[1]});
  const auto body = [&](const std::array<int64_t, 2>& offsets, int64_t count, const std::array<int64_t, 2>& strides) {
    Row<T> row(shape.length);
    Row<T> work(shape.length);
    for (int64_t r = 0; r < count; ++r) {
      gather(x + offsets[0] + r * strides[0], shape.steps[0], row);
      const LogSum<T> log_sum(row, work);
      if (logarithm) {
        work = row - log_sum.max - static_cast<T>(log_sum.rest);
      } else {
        work *= static_cast<T>(std::exp(-log_sum.rest));
      }
      T* out = y + offsets[1] + r * strides[1];
      for (int64_t i = 0; i < shape.length; ++i) {
        out[i * shape.steps[1]] = work[i];
      }
    }
  };
  for_each_run(loop, body, row_grain(shape.length));
}

// softmax:      dx = y · (dy - sum(dy · y))
// log_softmax:  dx = dy - exp(y) · sum(dy)
template <class T>
void softmax_backward_rows(const SoftmaxShape& shape, bool logarithm, const T* y, const T* dy, T* dx) {
  const auto loop = make_strided_loop<3>(shape.sizes, {shape.strides[0], shape.strides[1], shape.strides[2]});
  const auto body = [&](const std::array<int64_t, 3>& offsets, int64_t count, const std::array<int64_t, 3>& strides) {
    Row<T> value(shape.length);
    Row<T> gradient(shape.length);
    Row<T> work(shape.length);
    for (int64_t r = 0; r < count; ++r) {
      gather(y + offsets[0] + r * strides[0], shape.steps[0], value);
      gather(dy + offsets[1] + r * strides[1], shape.steps[1], gradient);
      if (logarithm) {
        exponentials(value);
        work = gradient - value * static_cast<T>(sum_of(gradient));
      } else {
        work = gradient * value;
        work = value * (gradient - static_cast<T>(sum_of(work)));
      }
      T* out = dx + offsets[2] + r * strides[2];
      for (int64_t i = 0; i < shape.length; ++i) {
        out[i * shape.steps[2]] = work[i];
      }
    }
  };
  for_each_run(loop, body, row_grain(shape.length));
}

/// Whether the row does not count.
bool is_ignored(const CrossEntropyShape& shape, bool class_numbers, const void* target, int64_t row) {
  return class_numbers && static_cast<const int64_t*>(target)[row] == shape.ignore_index;
}

double weight_of(const CrossEntropyShape& shape, int64_t label) {
  return shape.class_weights == nullptr ? 1 : shape.class_weights[label];
}

/// q, the smoothed and weighted target of one row: ((1 - smoothing) · target + smoothing / classes) · class weight.
template <class T>
void smoothed_target(const CrossEntropyShape& shape, bool class_numbers, const void* target, int64_t row, Row<T>& q) {
  if (class_numbers) {
    q.setZero();
    q[static_cast<const int64_t*>(target)[row]] = 1;
  } else {
    gather(static_cast<const T*>(target) + row * shape.target_row, shape.target_step, q);
  }
  q = q * static_cast<T>(1 - shape.smoothing) + static_cast<T>(shape.smoothing / static_cast<double>(shape.classes));
  if (shape.class_weights != nullptr) {
    q *= Eigen::Map<const Row<double>>(shape.class_weights, shape.classes).template cast<T>();
  }
}

template <class T>
void cross_entropy_rows(const CrossEntropyShape& shape, bool class_numbers, const T* x, const void* target,
                        double* loss, double* log_sum) {
  parallel_for(0, shape.rows, row_grain(shape.classes), [&](int64_t begin, int64_t end) {
    Row<T> logits(shape.classes);
    Row<T> work(shape.classes);
    for (int64_t row = begin; row < end; ++row) {
      if (is_ignored(shape, class_numbers, target, row)) {
        loss[row] = log_sum[row] = 0;
        continue;
      }
      gather(x + row * shape.x_row, shape.x_step, logits);
      const LogSum<T> sum(logits, work);
      log_sum[row] = static_cast<double>(sum.max) + sum.rest;
      if (class_numbers && shape.smoothing == 0) {
        // The other classes' logits, which may be infinite, do not enter.
        const auto label = static_cast<const int64_t*>(target)[row];
        loss[row] = weight_of(shape, label) * (log_sum[row] - static_cast<double>(logits[label]));
        continue;
      }
      // loss = sum of q · (log_sum - x)
      smoothed_target(shape, class_numbers, target, row, work);
      double total = 0;
#pragma omp simd reduction(+ : total)
      for (int64_t i = 0; i < shape.classes; ++i) {
        total += static_cast<double>(work[i]) * (log_sum[row] - static_cast<double>(logits[i]));
      }
      loss[row] = total;
    }
  });
}

// dx = dy · (softmax(x) · sum(q) - q),  dtarget = dy · (1 - smoothing) · class weight · (log_sum - x)
template <class T>
void cross_entropy_backward_rows(const CrossEntropyShape& shape, bool class_numbers, const T* x, const void* target,
                                 const double* log_sum, const T* dy, int64_t dy_step, double scale, T* dx, T* dtarget) {
  parallel_for(0, shape.rows, row_grain(shape.classes), [&](int64_t begin, int64_t end) {
    Row<T> below(shape.classes);  // x - log_sum
    Row<T> q(shape.classes);
    for (int64_t row = begin; row < end; ++row) {
      if (is_ignored(shape, class_numbers, target, row)) {
        std::fill_n(dx + row * shape.classes, shape.classes, T(0));  // class numbers have no gradient: dx is there
        continue;
      }
      const double weight = scale * static_cast<double>(dy[row * dy_step]);
      for (int64_t i = 0; i < shape.classes; ++i) {
        below[i] = static_cast<T>(static_cast<double>(x[row * shape.x_row + i * shape.x_step]) - log_sum[row]);
      }
      if (dtarget != nullptr) {
        Eigen::Map<Row<T>> gradient(dtarget + row * shape.classes, shape.classes);
        gradient = below * static_cast<T>(weight * (shape.smoothing - 1));
        if (shape.class_weights != nullptr) {
          gradient *= Eigen::Map<const Row<double>>(shape.class_weights, shape.classes).template cast<T>();
        }
      }
      if (dx != nullptr) {
        smoothed_target(shape, class_numbers, target, row, q);
        const double total = class_numbers && shape.class_weights == nullptr ? 1 : sum_of(q);
        exponentials(below);
        below = (below * static_cast<T>(total) - q) * static_cast<T>(weight);
        Eigen::Map<Row<T>>(dx + row * shape.classes, shape.classes) = below;
      }
    }
  });
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
                   double* loss, double* log_sum) {
  dispatch_floating("cross_entropy", dtype, [&]<class T>(T) {
    cross_entropy_rows(shape, class_numbers, static_cast<const T*>(x), target, loss, log_sum);
  });
}

void cross_entropy_backward(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x,
                            const void* target, const double* log_sum, const void* dy, int64_t dy_step, double scale,
                            void* dx, void* dtarget) {
  dispatch_floating("cross_entropy", dtype, [&]<class T>(T) {
    cross_entropy_backward_rows(shape, class_numbers, static_cast<const T*>(x), target, log_sum,
                                static_cast<const T*>(dy), dy_step, scale, static_cast<T*>(dx),
                                static_cast<T*>(dtarget));
  });
}

}  // namespace

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_backward);
HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_backward);

constinit const LossKernels loss_cpu{.softmax = NORMA_SIMD_CALL(softmax),
                                     .softmax_backward = NORMA_SIMD_CALL(softmax_backward),
                                     .cross_entropy = NORMA_SIMD_CALL(cross_entropy),
                                     .cross_entropy_backward = NORMA_SIMD_CALL(cross_entropy_backward)};

}  // namespace norma::kernels
#endif
