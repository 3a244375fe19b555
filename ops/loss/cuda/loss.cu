#include "core/cuda/flat_loop.h"
#include "core/cuda/row_teams.h"
#include "ops/loss/kernels.h"

#include <cmath>
#include <limits>

// The kernels of losses, and their table.

namespace norma::kernels::NORMA_BACKEND {

// --- softmax -------------------------------------------------------------------------------------------------------

/// log(sum(exp(x))) = max + rest, rest = log(sum(exp(x - max)))
template <class T>
struct LogSum {
  T max;
  double rest;
};

/// The LogSum of a row. All threads of its team call it.
template <class T, class Team>
NORMA_DEVICE LogSum<T> log_sum_of(int64_t count, const T* x, int64_t step, const Team& team) {
  T max = -std::numeric_limits<T>::infinity();  // NaN is not larger; the sum brings it back
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    const T value = x[i * step];
    max = max < value ? value : max;
  }
  max = static_cast<T>(team.largest(static_cast<double>(max)));
  double sum = 0;
  for (int64_t i = team.rank(); i < count; i += team.size()) {
    sum += static_cast<double>(std::exp(x[i * step] - max));
  }
  return {max, std::log(team.sum(sum))};
}

/// The rows of N tensors, and the step from one element of a row to the next in each.
template <int N>
struct SoftmaxRows {
  FlatLoop<N> rows;
  int64_t length;
  int64_t steps[N];
};

template <class T, bool by_block>
NORMA_KERNEL void softmax_rows(SoftmaxRows<2> of, int lanes, bool logarithm, const T* x, T* y) {
  for_each_row<by_block>(of.rows.count, lanes, [&](const auto& team, int64_t row, bool there) {
    int64_t at[2];
    of.rows.offsets(row, at);
    const T* from = x + at[0];
    T* to = y + at[1];
    const int64_t count = there ? of.length : 0;
    const auto [max, rest] = log_sum_of(count, from, of.steps[0], team);
    const T rounded_rest = static_cast<T>(rest);
    const T factor = static_cast<T>(std::exp(-rest));
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T below = from[i * of.steps[0]] - max;
      to[i * of.steps[1]] = logarithm ? below - rounded_rest : std::exp(below) * factor;
    }
  });
}

// softmax:      dx = y · (dy - sum(dy · y))
// log_softmax:  dx = dy - exp(y) · sum(dy)
template <class T, bool by_block>
NORMA_KERNEL void softmax_gradient_rows(SoftmaxRows<3> of, int lanes, bool logarithm, const T* y, const T* dy, T* dx) {
  for_each_row<by_block>(of.rows.count, lanes, [&](const auto& team, int64_t row, bool there) {
    int64_t at[3];
    of.rows.offsets(row, at);
    const T* value = y + at[0];
    const T* gradient = dy + at[1];
    T* to = dx + at[2];
    const int64_t count = there ? of.length : 0;
    double total = 0;
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T of_dy = gradient[i * of.steps[1]];
      total += static_cast<double>(logarithm ? of_dy : of_dy * value[i * of.steps[0]]);
    }
    const T sum = static_cast<T>(team.sum(total));
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T of_y = value[i * of.steps[0]];
      const T of_dy = gradient[i * of.steps[1]];
      to[i * of.steps[2]] = logarithm ? of_dy - std::exp(of_y) * sum : of_y * (of_dy - sum);
    }
  });
}

template <int N>
SoftmaxRows<N> rows_of(const SoftmaxShape& shape, const StridedLoop<N>& loop) {
  SoftmaxRows<N> rows{.rows = FlatLoop<N>(loop), .length = shape.length, .steps = {}};
  std::copy_n(shape.steps, N, rows.steps);
  return rows;
}

template <int N>
RowTeams teams_of(const SoftmaxShape& shape, const StridedLoop<N>& loop) {
  return teams_of_rows(loop.numel(), shape.length, /* side_by_side= */ loop.strides[0].back() < shape.steps[0]);
}

inline void softmax(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* x, void* y) {
  const auto loop = make_strided_loop<2>(shape.sizes, {shape.strides[0], shape.strides[1]});
  dispatch_floating("softmax", dtype, [&]<class T>(T) {
    with_row_teams(teams_of<2>(shape, loop), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), softmax_rows<T, by_block>,
             rows_of<2>(shape, loop), teams.lanes, logarithm, static_cast<const T*>(x), static_cast<T*>(y));
    });
  });
}

inline void softmax_backward(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* y, const void* dy,
                             void* dx) {
  const auto loop = make_strided_loop<3>(shape.sizes, {shape.strides[0], shape.strides[1], shape.strides[2]});
  dispatch_floating("softmax", dtype, [&]<class T>(T) {
    with_row_teams(teams_of<3>(shape, loop), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), softmax_gradient_rows<T, by_block>,
             rows_of<3>(shape, loop), teams.lanes, logarithm, static_cast<const T*>(y), static_cast<const T*>(dy),
             static_cast<T*>(dx));
    });
  });
}

// --- cross_entropy -------------------------------------------------------------------------------------------------

/// The target of one row: labels or probabilities, of which one is null.
template <class T>
struct Targets {
  const int64_t* labels;
  const T* probabilities;

  NORMA_DEVICE bool is_ignored(const CrossEntropyShape& shape, int64_t row) const {
    return labels != nullptr && labels[row] == shape.ignore_index;
  }
  /// True iff a row that counts has a label that is no class.
  NORMA_DEVICE bool is_no_class(const CrossEntropyShape& shape, int64_t row) const {
    return labels != nullptr && (labels[row] < 0 || labels[row] >= shape.classes);
  }
};

/// q, the smoothed and weighted target of one row: ((1 - smoothing) · target + smoothing / classes) · class weight.
template <class T>
class SmoothedTarget {
 public:
  NORMA_DEVICE SmoothedTarget(const CrossEntropyShape& shape, const Targets<T>& targets, int64_t row)
      : probabilities_(targets.probabilities == nullptr ? nullptr : targets.probabilities + row * shape.target_row),
        step_(shape.target_step),
        label_(targets.labels == nullptr ? 0 : targets.labels[row]),
        share_(static_cast<T>(1 - shape.smoothing)),
        floor_(static_cast<T>(shape.smoothing / static_cast<double>(shape.classes))),
        weights_(shape.class_weights) {}

  NORMA_DEVICE T operator()(int64_t i) const {
    const T plain = probabilities_ == nullptr ? (i == label_ ? T(1) : T(0)) : probabilities_[i * step_];
    const T value = plain * share_ + floor_;
    // Without smoothing, the other classes' weights have no part: they may be infinite.
    const bool unweighted = weights_ == nullptr || (probabilities_ == nullptr && value == T(0));
    return unweighted ? value : value * static_cast<T>(weights_[i]);
  }

 private:
  const T* probabilities_;
  int64_t step_;
  int64_t label_;
  T share_;
  T floor_;
  const double* weights_;
};

template <class T, bool by_block>
NORMA_KERNEL void cross_entropy_rows(CrossEntropyShape shape, int lanes, Targets<T> targets, const T* x, double* loss,
                                     double* log_sum, double* counts) {
  for_each_row<by_block>(shape.rows, lanes, [&](const auto& team, int64_t row, bool there) {
    const bool ignored = targets.is_ignored(shape, row);
    const bool no_class = !ignored && targets.is_no_class(shape, row);
    const int64_t count = there && !ignored ? shape.classes : 0;
    double weight = 1;
    if (targets.labels != nullptr && shape.class_weights != nullptr && !ignored && !no_class) {
      weight = shape.class_weights[targets.labels[row]];
    }
    const T* logits = x + row * shape.x_row;
    const auto [max, rest] = log_sum_of(count, logits, shape.x_step, team);
    const double of_row = static_cast<double>(max) + rest;
    double total = 0;
    if (targets.labels != nullptr && shape.smoothing == 0) {
      // The other classes' logits have no part: they may be infinite.
      if (!ignored && !no_class) {
        total = weight * (of_row - static_cast<double>(logits[targets.labels[row] * shape.x_step]));
      }
    } else {
      // loss = sum of q · (log_sum - x)
      const SmoothedTarget<T> q(shape, targets, row);
      for (int64_t i = team.rank(); i < count; i += team.size()) {
        total += static_cast<double>(q(i)) * (of_row - static_cast<double>(logits[i * shape.x_step]));
      }
      total = team.sum(total);
    }
    if (there && team.rank() == 0) {
      constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
      loss[row] = ignored ? 0 : no_class ? kNan : total;
      log_sum[row] = ignored ? 0 : no_class ? kNan : of_row;
      counts[row] = ignored ? 0 : weight;
    }
  });
}

/// The gradient that arrives at the loss: row i is scaled by dy[i · step] / *divisor, or 0 if the divisor is; null: 1.
template <class T>
struct LossGradient {
  const T* dy;
  int64_t step;
  const double* divisor;

  NORMA_DEVICE double of_row(int64_t row) const {
    const double scale = divisor == nullptr ? 1 : *divisor == 0 ? 0 : 1 / *divisor;
    return scale * static_cast<double>(dy[row * step]);
  }
};

// dx = dy · (softmax(x) · sum(q) - q),  dtarget = dy · (smoothing - 1) · class weight · (x - log_sum)
template <class T, bool by_block>
NORMA_KERNEL void cross_entropy_gradient_rows(CrossEntropyShape shape, int lanes, Targets<T> targets, const T* x,
                                              const double* log_sum, LossGradient<T> gradient, T* dx, T* dtarget) {
  for_each_row<by_block>(shape.rows, lanes, [&](const auto& team, int64_t row, bool there) {
    const bool ignored = targets.is_ignored(shape, row);
    const int64_t count = there ? shape.classes : 0;
    const T* logits = x + row * shape.x_row;
    const double weight = gradient.of_row(row);
    const SmoothedTarget<T> q(shape, targets, row);
    const auto below = [&](int64_t i) {
      return static_cast<T>(static_cast<double>(logits[i * shape.x_step]) - log_sum[row]);
    };
    if (dtarget != nullptr) {
      const T factor = static_cast<T>(weight * (shape.smoothing - 1));
      for (int64_t i = team.rank(); i < count; i += team.size()) {
        const T value = below(i) * factor;
        dtarget[row * shape.classes + i] =
            shape.class_weights == nullptr ? value : value * static_cast<T>(shape.class_weights[i]);
      }
    }
    if (dx == nullptr) {
      return;
    }
    double sum = 1;
    if (targets.labels == nullptr || shape.class_weights != nullptr) {
      sum = 0;
      for (int64_t i = team.rank(); i < count; i += team.size()) {
        sum += static_cast<double>(q(i));
      }
      sum = team.sum(sum);
    }
    for (int64_t i = team.rank(); i < count; i += team.size()) {
      const T difference = std::exp(below(i)) * static_cast<T>(sum) - q(i);
      dx[row * shape.classes + i] = ignored ? T(0) : difference * static_cast<T>(weight);
    }
  });
}

template <class T>
Targets<T> targets_of(bool class_numbers, const void* target) {
  return {.labels = class_numbers ? static_cast<const int64_t*>(target) : nullptr,
          .probabilities = class_numbers ? nullptr : static_cast<const T*>(target)};
}

inline RowTeams teams_of(const CrossEntropyShape& shape) {
  return teams_of_rows(shape.rows, shape.classes, /* side_by_side= */ shape.x_row < shape.x_step);
}

inline void cross_entropy(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x,
                          const void* target, double* loss, double* log_sum, double* counts) {
  dispatch_floating("cross_entropy", dtype, [&]<class T>(T) {
    with_row_teams(teams_of(shape), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), cross_entropy_rows<T, by_block>, shape,
             teams.lanes, targets_of<T>(class_numbers, target), static_cast<const T*>(x), loss, log_sum, counts);
    });
  });
}

inline void cross_entropy_backward(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x,
                                   const void* target, const double* log_sum, const void* dy, int64_t dy_step,
                                   const double* divisor, void* dx, void* dtarget) {
  dispatch_floating("cross_entropy", dtype, [&]<class T>(T) {
    const LossGradient<T> gradient{.dy = static_cast<const T*>(dy), .step = dy_step, .divisor = divisor};
    with_row_teams(teams_of(shape), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), cross_entropy_gradient_rows<T, by_block>,
             shape, teams.lanes, targets_of<T>(class_numbers, target), static_cast<const T*>(x), log_sum, gradient,
             static_cast<T*>(dx), static_cast<T*>(dtarget));
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const LossKernels NORMA_TABLE(loss){.softmax = softmax,
                                              .softmax_backward = softmax_backward,
                                              .cross_entropy = cross_entropy,
                                              .cross_entropy_backward = cross_entropy_backward};

}  // namespace norma::kernels
