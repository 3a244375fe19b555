#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

/// Where two weights are after 40 steps on times * ((u - 3)² + 25 (v - 1)²): the loss is 25 times as steep in v.
inline void after_40_steps(const std::string& optimizer, double rate, double times) {
  const bool adam = optimizer == "Adam";
  const double kept = optimizer == "SGD" ? 0 : adam ? 0.9 : 0.8;
  double w[2] = {};
  double m[2] = {};
  double s[2] = {};
  for (int step = 1; step <= 40; ++step) {
    for (int i = 0; i < 2; ++i) {
      const double g = times * (i == 0 ? 2 * (w[0] - 3) : 50 * (w[1] - 1));
      m[i] = kept * m[i] + (adam ? 0.1 * g : g);
      s[i] = 0.999 * s[i] + 0.001 * g * g;
      const double mean = m[i] / (1 - std::pow(0.9, step));  // m and s begin as 0, which does not count
      const double square = s[i] / (1 - std::pow(0.999, step));
      w[i] -= rate * (adam ? mean / (std::sqrt(square) + 1e-8) : m[i]);
    }
  }
  fmt::print("{:<9} rate {:4g}, loss times {:3g}: u {:6.4g}, v {:10.4g}\n", optimizer, rate, times, w[0], w[1]);
}

inline void optimizers() {
  fmt::print("\n");
  after_40_steps("SGD", 0.03, 1);
  after_40_steps("SGD", 0.05, 1);
  after_40_steps("momentum", 0.03, 1);
  after_40_steps("Adam", 0.1, 1);
  after_40_steps("Adam", 0.1, 100);
}
