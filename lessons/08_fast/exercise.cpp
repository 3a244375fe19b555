// Lesson 8: fill the three gaps, then: ./run lesson 8 --check

#include "exercise.h"

#include <norma/norma.h>

// For the processor of the compiler's flags alone, which is this one.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include <cmath>
#include <stdexcept>

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
  // GAP 1: as sum_of() above, with two changes. Before the loop, make a vector that has `mean` in all lanes:
  // hn::Set(d, mean). In the loop, a = hn::Sub(loaded, means), then hn::MulAdd(a, a, first), which is a * a + first.
  // Do not forget what is left over.
  throw std::logic_error("gap 1 is not written yet: squares_about()");
}

void write_row(const float* x, float mean, float rstd, int64_t n, float* y) {
  // GAP 2: load a vector, subtract, multiply by hn::Set(d, rstd), and store it: hn::StoreU(vector, d, y + i). Steps of
  // one vector will do, since no element waits for another. Do not forget what is left over.
  throw std::logic_error("gap 2 is not written yet: write_row()");
}

void norm_rows(const float* x, int64_t rows, int64_t n, float* y) {
  // GAP 3: for each row: sum_of, squares_about, write_row. Then let all cores share the rows. Each core calls this
  // function with its part of them; the 1 is the fewest rows that are worth a core:
  //   norma::parallel_for(0, rows, 1, [&](int64_t first, int64_t last) { … rows first to last - 1 … });
  throw std::logic_error("gap 3 is not written yet: norm_rows()");
}
