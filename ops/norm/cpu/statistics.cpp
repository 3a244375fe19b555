#include "ops/norm/cpu/walks.h"

#include "core/half.h"

#include <array>
#include <span>

// Statistics that take passes over x of their own: of sets whose squares leave the range of T, as at 1e20 or 1e-25 in
// float32, and of infinite elements; and those to compare `stable` with, welford, two_pass and compensated, as the
// textbooks write them, in T, which are fixed for the walk that follows.

namespace norma::kernels::cpu {

namespace {

/// Calls f(element) for the elements of a set.
template <class S, class F>
void for_each_element(const NormShape& shape, const S* x, int64_t set, F&& f) {
  const int64_t outer = set / shape.kept;
  const int64_t kept = set % shape.kept;
  for (int64_t a = 0; a < shape.reduce_outer; ++a) {
    const S* run = x + ((outer * shape.reduce_outer + a) * shape.kept + kept) * shape.reduce_inner;
    for (int64_t b = 0; b < shape.reduce_inner; ++b) {
      f(static_cast<double>(static_cast<compute_t<S>>(run[b])));
    }
  }
}

}  // namespace

template <class S>
bool store_scaled_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set) {
  using T = compute_t<S>;
  const NormShape& shape = problem.shape;
  double largest = 0;
  bool finite = true;
  for_each_element(shape, arrays.x, set, [&](double value) {
    largest = std::max(largest, std::abs(value));
    finite = finite && std::isfinite(value);
  });
  if (!finite) {
    if (problem.centring == Centring::none) {
      return false;
    }
    double sum = 0;
    for_each_element(shape, arrays.x, set, [&](double value) { sum += value; });
    store_set(problem, arrays, set, statistics_of_not_finite<T>(problem, sum));
    return true;
  }
  const double scale = scale_of(largest);
  const auto count = static_cast<double>(shape.set_size());

  // mean + mean_low = sum(x) / n, in units of 1 / scale; the second round adds what the first lost to rounding
  double mean = 0;
  double mean_low = 0;
  if (problem.centring != Centring::none) {
    double sum = 0;
    for_each_element(shape, arrays.x, set, [&](double value) { sum += value * scale; });
    mean = sum / count;
    for_each_element(shape, arrays.x, set, [&](double value) { mean_low += (value * scale - mean) / count; });
  }
  double squares = 0;
  for_each_element(shape, arrays.x, set, [&](double value) {
    const double d = (value * scale - mean) - mean_low;
    squares += d * d;
  });
  store_set(problem, arrays, set, statistics_of_scaled<T>(problem, scale, mean, mean_low, squares));
  return true;
}

template bool store_scaled_statistics(const NormProblem&, const ForwardArrays<float>&, int64_t);
template bool store_scaled_statistics(const NormProblem&, const ForwardArrays<double>&, int64_t);
template bool store_scaled_statistics(const NormProblem&, const ForwardArrays<bfloat16>&, int64_t);
template bool store_scaled_statistics(const NormProblem&, const ForwardArrays<float16>&, int64_t);

// --- textbooks
// ---------------------------------------------------------------------------------------------------------

namespace {

/// Numbers that are summed side by side: elements of neighbouring sets, or of one.
constexpr int64_t kWidth = 64;
template <class T>
using Lanes = std::array<T, kWidth>;

/// Neighbouring sets of one outer index (reduce_inner = 1), or one set whose runs are cut into rows of kWidth elements.
struct Bundle {
  int64_t offset = 0;  ///< of the first element
  int64_t first_set = 0;
  int64_t sets = 1;
  int64_t runs = 1;
  int64_t run = 1;     ///< elements of one set in a run
  int64_t stride = 0;  ///< from run to run

  /// Calls f(first element, how many) for rows of at most kWidth elements. Element i of a row belongs to set i, or to
  /// the only set.
  template <class S, class F>
  void for_each_row(const S* x, F&& f) const {
    for (int64_t a = 0; a < runs; ++a) {
      const S* begin = x + offset + a * stride;
      for (int64_t i = 0; i < sets * run; i += kWidth) {
        f(begin + i, std::min(kWidth, sets * run - i));
      }
    }
  }
};

/// Adds a value to one sum, and the rounding error of that to another. Neumaier, "Rundungsfehleranalyse einiger
/// Verfahren zur Summation endlicher Summen", 1974.
template <class T>
inline void add_compensated(T& sum, T& lost, T value) {
  const T total = sum + value;
  const bool value_is_smaller = std::abs(sum) >= std::abs(value);
  lost += value_is_smaller ? (sum - total) + value : (value - total) + sum;
  sum = total;
}

/// Sums that carry their rounding errors along.
template <class T>
struct CompensatedSum {
  Lanes<T> sum{};
  Lanes<T> lost{};

  void add(int64_t lane, T value) {
    const auto i = static_cast<size_t>(lane);
    add_compensated(sum[i], lost[i], value);
  }
};

/// A number as the sum of two; the second holds what the first has lost to rounding.
struct TwoDoubles {
  double high = 0;
  double low = 0;

  [[nodiscard]] double value() const { return high + low; }
};

/// The compensated sum of set `set` of a bundle: of its lane, or of all lanes when there is one set.
template <class T>
TwoDoubles total_of(const Bundle& bundle, int64_t set, const CompensatedSum<T>& sums) {
  TwoDoubles total;
  for (int64_t lane = bundle.sets > 1 ? set : 0; lane < (bundle.sets > 1 ? set + 1 : kWidth); ++lane) {
    const auto i = static_cast<size_t>(lane);
    add_compensated(total.high, total.low, static_cast<double>(sums.sum[i]));
    add_compensated(total.high, total.low, static_cast<double>(sums.lost[i]));
  }
  return total;
}

/// sum(values of the lanes of set `set`): one lane, or all when there is one set.
template <class T, class Get>
T total(const Bundle& bundle, int64_t set, Get get) {
  if (bundle.sets > 1) {
    return get(set);
  }
  T sum = 0;
  for (int64_t lane = 0; lane < kWidth; ++lane) {
    sum += get(lane);
  }
  return sum;
}

/// mean = sum(x) / n, M2 = sum((x - mean)²)
template <class T, class S>
void two_pass(const Bundle& bundle, const S* x, double count, std::span<Moments> moments) {
  Lanes<T> sum{};
  bundle.for_each_row(x, [&](const S* row, int64_t active) {
#pragma omp simd
    for (int64_t i = 0; i < active; ++i) {
      sum[static_cast<size_t>(i)] += static_cast<T>(row[i]);
    }
  });
  Lanes<T> mean{};
  for (int64_t set = 0; set < bundle.sets; ++set) {
    const T of_set =
        total<T>(bundle, set, [&](int64_t i) { return sum[static_cast<size_t>(i)]; }) / static_cast<T>(count);
    bundle.sets > 1 ? void(mean[static_cast<size_t>(set)] = of_set) : mean.fill(of_set);
  }
  Lanes<T> squares{};
  bundle.for_each_row(x, [&](const S* row, int64_t active) {
#pragma omp simd
    for (int64_t i = 0; i < active; ++i) {
      const T d = static_cast<T>(row[i]) - mean[static_cast<size_t>(i)];
      squares[static_cast<size_t>(i)] += d * d;
    }
  });
  for (int64_t set = 0; set < bundle.sets; ++set) {
    moments[static_cast<size_t>(set)] = {mean[static_cast<size_t>(set)], 0, total<T>(bundle, set, [&](int64_t i) {
                                           return squares[static_cast<size_t>(i)];
                                         })};
  }
}

/// As two_pass(), with compensated sums and the mean as high + low.
template <class T, class S>
void compensated(const Bundle& bundle, const S* x, double count, std::span<Moments> moments) {
  CompensatedSum<T> sum;
  bundle.for_each_row(x, [&](const S* row, int64_t active) {
#pragma omp simd
    for (int64_t i = 0; i < active; ++i) {
      sum.add(i, static_cast<T>(row[i]));
    }
  });
  Lanes<T> high{};
  Lanes<T> low{};
  for (int64_t set = 0; set < bundle.sets; ++set) {
    const TwoDoubles of_set = total_of(bundle, set, sum);
    const T rounded = static_cast<T>(of_set.value() / count);
    const T rounded_low =
        static_cast<T>((std::fma(-count, static_cast<double>(rounded), of_set.high) + of_set.low) / count);
    if (bundle.sets > 1) {
      high[static_cast<size_t>(set)] = rounded;
      low[static_cast<size_t>(set)] = rounded_low;
    } else {
      high.fill(rounded);
      low.fill(rounded_low);
    }
  }
  CompensatedSum<T> squares;
  bundle.for_each_row(x, [&](const S* row, int64_t active) {
#pragma omp simd
    for (int64_t i = 0; i < active; ++i) {
      const T d = (static_cast<T>(row[i]) - high[static_cast<size_t>(i)]) - low[static_cast<size_t>(i)];
      squares.add(i, d * d);
    }
  });
  for (int64_t set = 0; set < bundle.sets; ++set) {
    moments[static_cast<size_t>(set)] = {high[static_cast<size_t>(set)], low[static_cast<size_t>(set)],
                                         total_of(bundle, set, squares).value()};
  }
}

/// mean += (x - mean) / n, M2 += (x - old mean) * (x - new mean). Welford, "Note on a method for calculating corrected
/// sums of squares and products", 1962. Lanes of one set are merged at the end.
template <class T, class S>
void welford(const Bundle& bundle, const S* x, std::span<Moments> moments) {
  Lanes<T> mean{};
  Lanes<T> m2{};
  Lanes<T> seen{};
  bundle.for_each_row(x, [&](const S* row, int64_t active) {
#pragma omp simd
    for (int64_t lane = 0; lane < active; ++lane) {
      const auto i = static_cast<size_t>(lane);
      seen[i] += T(1);
      const T value = static_cast<T>(row[lane]);
      const T delta = value - mean[i];
      mean[i] += delta / seen[i];
      m2[i] += delta * (value - mean[i]);
    }
  });
  const auto of_lane = [&](size_t i) { return Moments{mean[i], 0, m2[i]}; };
  if (bundle.sets > 1) {
    for (size_t set = 0; set < static_cast<size_t>(bundle.sets); ++set) {
      moments[set] = of_lane(set);
    }
    return;
  }
  Moments all = of_lane(0);
  double count = seen[0];
  for (size_t i = 1; i < kWidth && seen[i] > 0; ++i) {
    all = merge(/* raw= */ false, all, count, of_lane(i), seen[i]);
    count += seen[i];
  }
  moments[0] = {static_cast<T>(all.pivot + all.offset), 0, all.m2};
}

}  // namespace

template <class S>
void textbook_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  using T = compute_t<S>;
  const NormShape& shape = problem.shape;
  const int64_t bundle_sets = shape.reduce_inner == 1 ? kWidth : 1;
  const int64_t bundles = ceil_div(shape.kept, bundle_sets);
  const auto count = static_cast<double>(shape.set_size());
  const int64_t elements = shape.set_size() * std::min(bundle_sets, shape.kept);
  parallel_for(0, shape.outer * bundles, std::max<int64_t>(1, kPointwiseGrain / elements),
               [&](int64_t begin, int64_t end) {
                 std::array<Moments, kWidth> moments;
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t outer = task / bundles;
                   const int64_t kept = task % bundles * bundle_sets;
                   const Bundle bundle{.offset = (outer * shape.reduce_outer * shape.kept + kept) * shape.reduce_inner,
                                       .first_set = outer * shape.kept + kept,
                                       .sets = std::min(bundle_sets, shape.kept - kept),
                                       .runs = shape.reduce_outer,
                                       .run = shape.reduce_inner,
                                       .stride = shape.kept * shape.reduce_inner};
                   switch (problem.statistics) {
                     case Statistics::welford: welford<T>(bundle, arrays.x, moments); break;
                     case Statistics::two_pass: two_pass<T>(bundle, arrays.x, count, moments); break;
                     default: compensated<T>(bundle, arrays.x, count, moments); break;
                   }
                   for (int64_t set = 0; set < bundle.sets; ++set) {
                     store_statistics(problem, moments[static_cast<size_t>(set)], arrays, bundle.first_set + set);
                   }
                 }
               });
}

template void textbook_statistics(const NormProblem&, const ForwardArrays<float>&);
template void textbook_statistics(const NormProblem&, const ForwardArrays<double>&);
template void textbook_statistics(const NormProblem&, const ForwardArrays<bfloat16>&);
template void textbook_statistics(const NormProblem&, const ForwardArrays<float16>&);

}  // namespace norma::kernels::cpu
