#pragma once

#include <span>

/// What is known of some elements: how many there are, their mean, and the sum of their squared distances from it.
/// The variance is m2 / count.
template <class T>
struct Moments {
  T count = 0;
  T mean = 0;
  T m2 = 0;
};

// T is float or double. Compute in T: a wider type would hide the fault that this lesson is about.

/// Gap 1: two passes. First the mean, then m2.
template <class T>
Moments<T> two_passes(std::span<const T> x);

/// Gap 2: Welford's way (1962). Takes one more element in.
template <class T>
void take_in(Moments<T>& so_far, T x);

/// Gap 3: Chan's way (1979). The moments of all elements of a and b; either may have none.
template <class T>
Moments<T> merged(const Moments<T>& a, const Moments<T>& b);
