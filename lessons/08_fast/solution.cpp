// Lesson 8: our answers.

#include "exercise.h"

#include <norma/norma.h>

// For the processor of the compiler's flags alone, which is this one.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include <cmath>

namespace hn = hwy::HWY_NAMESPACE;

float sum_of(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;                     // the widest vector of floats that this processor has
  const auto lanes = static_cast<int64_t>(Lanes(d));  // 4, 8 or 16
  auto first = hn::Zero(d);
  auto second = hn::Zero(d);  // two sums: the processor starts one addition while it waits for the other
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    first = hn::Add(first, hn::LoadU(d, x + i));
    second = hn::Add(second, hn::LoadU(d, x + i + lanes));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
  for (; i < n; ++i) {  // what is left over
    sum += x[i];
  }
  return sum;
}

float squares_about(float mean, const float* x, int64_t n) {
  // GAP 1
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(Lanes(d));
  const auto means = hn::Set(d, mean);
  auto first = hn::Zero(d);
  auto second = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::Sub(hn::LoadU(d, x + i), means);
    const auto b = hn::Sub(hn::LoadU(d, x + i + lanes), means);
    first = hn::MulAdd(a, a, first);
    second = hn::MulAdd(b, b, second);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
  for (; i < n; ++i) {
    sum += (x[i] - mean) * (x[i] - mean);
  }
  return sum;
}

void write_row(const float* x, float mean, float rstd, int64_t n, float* y) {
  // GAP 2
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(Lanes(d));
  const auto means = hn::Set(d, mean);
  const auto factors = hn::Set(d, rstd);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::Sub(hn::LoadU(d, x + i), means), factors), d, y + i);
  }
  for (; i < n; ++i) {
    y[i] = (x[i] - mean) * rstd;
  }
}

void norm_rows(const float* x, int64_t rows, int64_t n, float* y) {
  // GAP 3
  norma::parallel_for(0, rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const float* const from = x + row * n;
      const float mean = sum_of(from, n) / static_cast<float>(n);
      const float var = squares_about(mean, from, n) / static_cast<float>(n);
      write_row(from, mean, 1 / std::sqrt(var + kEps), n, y + row * n);
    }
  });
}
