#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/optimizer/optimizer_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "ops/optimizer/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
namespace {

using namespace simd::HWY_NAMESPACE;

/// Calls f(i, how much) for the vectors of `count` numbers T, threads side by side.
template <class T, class F>
void for_each_lanes_parallel(int64_t count, F f) {
  parallel_for(0, count, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    for_each_lanes<T>(end - begin, [&](int64_t i, auto part) HWY_ATTR { f(begin + i, part); });
  });
}

template <class Item>
auto numbers_of(const Item& item) {
  return item.changing == nullptr ? item.step : *item.changing;
}

bool allows_changes(const double* guard) {
  return guard == nullptr || (std::isfinite(guard[0]) && std::isfinite(guard[1]));
}

/// Calls f<T>(item) for all items if the guard allows it.
template <class Item, class F>
void change_each(std::string_view op, DType dtype, std::span<const Item> items, const double* guard, F f) {
  if (allows_changes(guard)) {
    dispatch_floating(op, dtype, [&](auto zero) {
      for (const Item& item : items) {
        f(item, zero);
      }
    });
  }
}

// The steps are PyTorch's, operation by operation: products are rounded before they are added.

template <class T>
void sgd_of(const SgdItem& item) {
  const auto step = numbers_of(item);
  T* p = static_cast<T*>(item.p);
  const T* g = static_cast<const T*>(item.gradient);
  T* v = static_cast<T*>(item.v);
  const auto rate = static_cast<T>(step.rate);
  const auto decay = static_cast<T>(step.weight_decay);
  const auto momentum = static_cast<T>(step.momentum);
  const auto share = static_cast<T>(step.share);
  const auto own = static_cast<T>(step.own);
  const auto along = static_cast<T>(step.along);
  if (v == nullptr) {
    for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
      const Lanes<T> before = load(p + i, part);
      store(p + i, before - rate * (load(g + i, part) + decay * before), part);
    });
    return;
  }
  for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
    const Lanes<T> before = load(p + i, part);
    const Lanes<T> slope = load(g + i, part) + decay * before;
    const Lanes<T> speed = momentum * load(v + i, part) + share * slope;
    store(v + i, speed, part);
    store(p + i, before - rate * (own * slope + along * speed), part);
  });
}

template <class T>
void adamw_of(const AdamWItem& item) {
  const auto step = numbers_of(item);
  T* p = static_cast<T*>(item.p);
  const T* g = static_cast<const T*>(item.gradient);
  T* m = static_cast<T*>(item.m);
  T* v = static_cast<T*>(item.v);
  const auto shrink = static_cast<T>(step.shrink);
  const auto beta1 = static_cast<T>(step.beta1);
  const auto rest1 = static_cast<T>(1 - step.beta1);
  const auto beta2 = static_cast<T>(step.beta2);
  const auto rest2 = static_cast<T>(1 - step.beta2);
  const auto step_size = static_cast<T>(step.step_size);
  const auto scale = static_cast<T>(step.scale);
  const auto eps = static_cast<T>(step.eps);
  for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
    const Lanes<T> slope = load(g + i, part);
    const Lanes<T> mean = beta1 * load(m + i, part) + rest1 * slope;
    const Lanes<T> square = beta2 * load(v + i, part) + rest2 * slope * slope;
    store(m + i, mean, part);
    store(v + i, square, part);
    store(p + i, shrink * load(p + i, part) - step_size * mean / (sqrt(square) * scale + eps), part);
  });
}

template <class T>
void lamb_direction_of(const LambItem& item) {
  const auto step = numbers_of(item);
  const T* p = static_cast<const T*>(item.p);
  const T* g = static_cast<const T*>(item.gradient);
  T* m = static_cast<T*>(item.m);
  T* v = static_cast<T*>(item.v);
  T* u = static_cast<T*>(item.u);
  const auto divisor = item.divisor == nullptr ? T(1) : static_cast<T>(*item.divisor);
  const auto beta1 = static_cast<T>(step.beta1);
  const auto rest1 = static_cast<T>(1 - step.beta1);
  const auto beta2 = static_cast<T>(step.beta2);
  const auto rest2 = static_cast<T>(1 - step.beta2);
  const auto eps = static_cast<T>(step.eps);
  const auto correction1 = static_cast<T>(step.correction1);
  const auto correction2 = static_cast<T>(step.correction2);
  const auto decay = static_cast<T>(step.weight_decay);
  for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
    const Lanes<T> slope = load(g + i, part) / divisor;
    const Lanes<T> mean = beta1 * load(m + i, part) + rest1 * slope;
    const Lanes<T> square = beta2 * load(v + i, part) + slope * slope * rest2;
    const Lanes<T> spread = sqrt(square) / correction2 + eps;
    store(m + i, mean, part);
    store(v + i, square, part);
    store(u + i, mean / correction1 / spread + decay * load(p + i, part), part);
  });
}

template <class T>
void lamb_move_of(const LambItem& item) {
  const auto step = numbers_of(item);
  T* p = static_cast<T*>(item.p);
  const T* u = static_cast<const T*>(item.u);
  const auto weight = static_cast<T>(std::sqrt(*item.p_squares));
  const auto length = static_cast<T>(std::sqrt(*item.u_squares));
  const T ratio = step.weight_decay != 0 && weight > 0 && length > 0 ? weight / length : T(1);
  const auto rate = static_cast<T>(step.rate);
  for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
    store(p + i, load(p + i, part) - rate * (ratio * load(u + i, part)), part);
  });
}

void sgd(DType dtype, std::span<const SgdItem> items, const double* guard) {
  change_each("sgd", dtype, items, guard, []<class T>(const SgdItem& item, T) { sgd_of<T>(item); });
}

void adamw(DType dtype, std::span<const AdamWItem> items, const double* guard) {
  change_each("adamw", dtype, items, guard, []<class T>(const AdamWItem& item, T) { adamw_of<T>(item); });
}

void lamb_direction(DType dtype, std::span<const LambItem> items, const double* guard) {
  change_each("lamb", dtype, items, guard, []<class T>(const LambItem& item, T) { lamb_direction_of<T>(item); });
}

void lamb_move(DType dtype, std::span<const LambItem> items, const double* guard) {
  change_each("lamb", dtype, items, guard, []<class T>(const LambItem& item, T) { lamb_move_of<T>(item); });
}

void average(DType dtype, const double* share, std::span<const CopyItem> items, const double* guard) {
  if (!is_floating(dtype) || *share == 1) {
    for (const CopyItem& item : items) {
      if (allows_changes(guard)) {
        std::memcpy(item.to, item.from, static_cast<size_t>(item.count) * size_of(dtype));
      }
    }
    return;
  }
  change_each("average", dtype, items, guard, [share]<class T>(const CopyItem& item, T) {
    T* to = static_cast<T*>(item.to);
    const T* from = static_cast<const T*>(item.from);
    const auto by = static_cast<T>(*share);
    for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
      const Lanes<T> before = load(to + i, part);
      store(to + i, before + (load(from + i, part) - before) * by, part);
    });
  });
}

/// Elements of one partial sum: fixed, so that a sum has the same bits for any number of threads.
constexpr int64_t kBlock = 4096;

/// The sum of a block's squares, in chains that do not wait for each other.
template <class S, class T = compute_t<S>>
double block_sum(int64_t count, const S* x) {
  constexpr int64_t lanes = kLanes<T>;
  const auto add_square = [&](DoubleSum<T>& sum, int64_t i, auto part) HWY_ATTR {
    const auto value = to_double(load(x + i, part));
    sum.lanes += value * value;
  };
  DoubleSum<T> first;
  DoubleSum<T> second;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    add_square(first, i, Whole{});
    add_square(second, i + lanes, Whole{});
  }
  for_each_lanes<T>(count - i, [&](int64_t at, auto part) HWY_ATTR { add_square(first, i + at, part); });
  first.lanes += second.lanes;
  return first.total();
}

void sums_of_squares(DType dtype, std::span<const SquaresItem> items) {
  dispatch_any_floating("sum_of_squares", dtype, [&]<class S>(S) {
    for (const SquaresItem& item : items) {
      std::vector<double> partial(static_cast<size_t>((item.count + kBlock - 1) / kBlock));
      const S* values = static_cast<const S*>(item.x);
      parallel_for(0, static_cast<int64_t>(partial.size()), kPointwiseGrain / kBlock, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t start = block * kBlock;
          partial[static_cast<size_t>(block)] = block_sum(std::min(item.count - start, kBlock), values + start);
        }
      });
      double total = 0;
      for (const double part : partial) {
        total += part;
      }
      *item.sum = total;
    }
  });
}

void clipping(int64_t count, const double* sums, double max_norm, double* norm_and_factor) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    total += sums[i];
  }
  const double norm = std::sqrt(total);
  const double factor = max_norm / (norm + 1e-6);
  norm_and_factor[0] = norm;
  norm_and_factor[1] = factor < 1 ? factor : 1;
}

void scale(DType dtype, const double* factor, std::span<const ChangedItem> items) {
  if (*factor == 1) {
    return;
  }
  dispatch_any_floating("scale", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    const auto by = static_cast<T>(*factor);
    for (const ChangedItem& item : items) {
      S* values = static_cast<S*>(item.x);
      for_each_lanes_parallel<T>(
          item.count, [=](int64_t i, auto part) HWY_ATTR { store(values + i, load(values + i, part) * by, part); });
    }
  });
}

void cut_off(DType dtype, double limit, std::span<const ChangedItem> items) {
  dispatch_any_floating("cut_off", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    const auto bound = static_cast<T>(limit);
    for (const ChangedItem& item : items) {
      S* values = static_cast<S*>(item.x);
      for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
        store(values + i, at_most(bound, at_least(-bound, load(values + i, part))), part);
      });
    }
  });
}

}  // namespace

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

HWY_EXPORT(sgd);
HWY_EXPORT(adamw);
HWY_EXPORT(lamb_direction);
HWY_EXPORT(lamb_move);
HWY_EXPORT(average);
HWY_EXPORT(sums_of_squares);
HWY_EXPORT(clipping);
HWY_EXPORT(scale);
HWY_EXPORT(cut_off);

constinit const OptimizerKernels optimizer_cpu{.sgd = NORMA_SIMD_CALL(sgd),
                                               .adamw = NORMA_SIMD_CALL(adamw),
                                               .lamb_direction = NORMA_SIMD_CALL(lamb_direction),
                                               .lamb_move = NORMA_SIMD_CALL(lamb_move),
                                               .average = NORMA_SIMD_CALL(average),
                                               .sums_of_squares = NORMA_SIMD_CALL(sums_of_squares),
                                               .clipping = NORMA_SIMD_CALL(clipping),
                                               .scale = NORMA_SIMD_CALL(scale),
                                               .cut_off = NORMA_SIMD_CALL(cut_off)};

}  // namespace norma::kernels
#endif
