#pragma once

#include "core/random.h"

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace norma::lab::bench {

/// The order in which `count` programs take their turns in a round. It changes each round, so that no program is always
/// the first, far from another one, or behind the same one.
inline std::vector<size_t> turn_order(size_t count, uint64_t round) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  Generator random(round);
  for (size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

}  // namespace norma::lab::bench
