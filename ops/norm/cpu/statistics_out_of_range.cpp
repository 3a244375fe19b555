#include "core/half.h"
#include "ops/norm/cpu/statistics.h"

// Statistics of sets whose squares leave the range of T, as at 1e20 or 1e-25 in float32, and of infinite elements.

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
bool store_scaled_statistics(const NormProblem& problem, const NormArrays<S>& arrays, int64_t set) {
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

template bool store_scaled_statistics(const NormProblem&, const NormArrays<float>&, int64_t);
template bool store_scaled_statistics(const NormProblem&, const NormArrays<double>&, int64_t);
template bool store_scaled_statistics(const NormProblem&, const NormArrays<bfloat16>&, int64_t);
template bool store_scaled_statistics(const NormProblem&, const NormArrays<float16>&, int64_t);

}  // namespace norma::kernels::cpu
