// Lesson 7: our answers.

#include "exercise.h"

template <class T>
Moments<T> two_passes(std::span<const T> x) {
  // GAP 1
  Moments<T> moments{.count = static_cast<T>(x.size())};
  for (const T element : x) {
    moments.mean += element;
  }
  moments.mean /= moments.count;
  for (const T element : x) {
    moments.m2 += (element - moments.mean) * (element - moments.mean);
  }
  return moments;
}

template <class T>
void take_in(Moments<T>& so_far, T x) {
  // GAP 2
  so_far.count += 1;
  const T before = x - so_far.mean;
  so_far.mean += before / so_far.count;
  const T after = x - so_far.mean;
  so_far.m2 += before * after;
}

template <class T>
Moments<T> merged(const Moments<T>& a, const Moments<T>& b) {
  // GAP 3
  const T count = a.count + b.count;
  if (count == 0) {
    return {};
  }
  const T distance = b.mean - a.mean;
  return {.count = count,
          .mean = a.mean + distance * b.count / count,
          .m2 = a.m2 + b.m2 + distance * distance * a.count * b.count / count};
}

// The two types that the tests use.
template Moments<float> two_passes(std::span<const float> x);
template Moments<double> two_passes(std::span<const double> x);
template void take_in(Moments<float>& so_far, float x);
template void take_in(Moments<double>& so_far, double x);
template Moments<float> merged(const Moments<float>& a, const Moments<float>& b);
template Moments<double> merged(const Moments<double>& a, const Moments<double>& b);
