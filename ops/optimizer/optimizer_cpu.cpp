#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/optimizer/optimizer_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "ops/optimizer/formulas.h"

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

/// Makes the step of a formula for all items.
template <template <class> class Formula, class Item>
void make_step(std::string_view op, DType dtype, std::span<const Item> items, const double* guard) {
  change_each(op, dtype, items, guard, []<class T>(const Item& item, T) {
    const T* p = static_cast<const T*>(item.p);
    const T* gradient = static_cast<const T*>(item.gradient);
    T* m = static_cast<T*>(item.m);
    T* v = static_cast<T*>(item.v);
    T* result = static_cast<T*>(item.result);
    for_each_lanes_parallel<T>(item.count, [=, formula = Formula<T>(item)](int64_t i, auto part) HWY_ATTR {
      Lanes<T> value = load(p + i, part);
      Lanes<T> mean = m == nullptr ? Lanes<T>{} : load(static_cast<const T*>(m) + i, part);
      Lanes<T> square = v == nullptr ? Lanes<T>{} : load(static_cast<const T*>(v) + i, part);
      formula(value, load(gradient + i, part), mean, square);
      if (m != nullptr) {
        store(m + i, mean, part);
      }
      if (v != nullptr) {
        store(v + i, square, part);
      }
      store(result + i, value, part);
    });
  });
}

void sgd(DType dtype, std::span<const SgdItem> items, const double* guard) {
  make_step<Sgd>("sgd", dtype, items, guard);
}

void adamw(DType dtype, std::span<const AdamWItem> items, const double* guard) {
  make_step<AdamW>("adamw", dtype, items, guard);
}

void lamb_direction(DType dtype, std::span<const LambItem> items, const double* guard) {
  make_step<LambDirection>("lamb", dtype, items, guard);
}

void lamb_move(DType dtype, std::span<const LambItem> items, const double* guard) {
  change_each("lamb", dtype, items, guard, []<class T>(const LambItem& item, T) {
    const LambStep step = numbers_of(item);
    T* p = static_cast<T*>(item.p);
    const T* u = static_cast<const T*>(item.result);
    const auto weight = static_cast<T>(std::sqrt(item.squares[0]));
    const auto length = static_cast<T>(std::sqrt(item.squares[1]));
    const T ratio = step.weight_decay != 0 && weight > 0 && length > 0 ? weight / length : T(1);
    const auto rate = static_cast<T>(step.rate);
    for_each_lanes_parallel<T>(item.count, [=](int64_t i, auto part) HWY_ATTR {
      store(p + i, load(p + i, part) - rate * (ratio * load(u + i, part)), part);
    });
  });
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
