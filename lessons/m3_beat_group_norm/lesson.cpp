// Milestone 3: a design beside group norm in a small network.
#include <norma/norma.h>

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "exercise.h"
#include "layer.h"

int main() {
  register_my_design();
  std::vector<double> mine;
  std::vector<double> theirs;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    mine.push_back(accuracy_with("my_design", seed));
    theirs.push_back(accuracy_with("group:8", seed));
    fmt::print("seed {}, measured: my_design {:4.1f} %, group:8 {:4.1f} %\n", seed, mine.back(), theirs.back());
  }
  for (const double margin : {12.0, 1.0}) {
    fmt::print("margin {:2} points: beats or matches, measured: {:d} (1 is yes, 0 is no)\n", margin,
               beats_or_matches(mine, theirs, margin));
  }
}
