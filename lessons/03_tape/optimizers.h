#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>

/// Where two weights are after 40 steps on times * ((u - 3)² + 25 (v - 1)²): the loss is 25 times as steep in v.
inline void after_40_steps(const std::string& optimizer, double rate, double times) {
  std::array<double, 2> w{};
  std::array<double, 2> m{};
  std::array<double, 2> s{};
  for (int step = 1; step <= 40; ++step) {
    const std::array<double, 2> gradient = {times * 2 * (w[0] - 3), times * 50 * (w[1] - 1)};
    for (size_t i = 0; i < 2; ++i) {
      const double g = gradient[i];
      if (optimizer == "SGD") {
        w[i] -= rate * g;
      } else if (optimizer == "momentum") {
        m[i] = 0.8 * m[i] + g;
        w[i] -= rate * m[i];
      } else {  // Adam
        m[i] = 0.9 * m[i] + 0.1 * g;
        s[i] = 0.999 * s[i] + 0.001 * g * g;
        const double mean = m[i] / (1 - std::pow(0.9, step));  // of the gradients so far: m began as 0
        const double square = s[i] / (1 - std::pow(0.999, step));
        w[i] -= rate * mean / (std::sqrt(square) + 1e-8);
      }
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
