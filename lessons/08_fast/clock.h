#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <vector>

/// The seconds of the quickest call of each function: other programs only ever make a call slower. The functions take
/// turns, so that a slow moment of the machine meets all of them. At least 10 rounds, and at least 0.2 s.
inline std::vector<double> quickest(const std::vector<std::function<void()>>& functions) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> best(functions.size(), std::numeric_limits<double>::infinity());
  const auto begin = Clock::now();
  for (int round = 0; round < 10 || Clock::now() - begin < std::chrono::milliseconds(200); ++round) {
    for (size_t i = 0; i < functions.size(); ++i) {
      const auto start = Clock::now();
      functions[i]();
      best[i] = std::min(best[i], std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  return best;
}

/// A bar of up to 30 signs; the share 1 has 20.
inline std::string bar(double share) {
  return std::string(static_cast<size_t>(std::clamp(share * 20, 1.0, 30.0)), '#');
}
