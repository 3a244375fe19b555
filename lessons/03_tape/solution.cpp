// Lesson 3: the three gaps, filled.

#include "exercise.h"

#include <cmath>

std::size_t Tape::record(double value, const std::vector<Parent>& parents) {
  entries.push_back({value, parents, 0});
  return entries.size() - 1;
}

std::size_t add(Tape& tape, std::size_t a, std::size_t b) {
  const double value = tape.entries[a].value + tape.entries[b].value;
  return tape.record(value, {{a, 1}, {b, 1}});
}

std::size_t divide(Tape& tape, std::size_t a, std::size_t b) {
  const double x = tape.entries[a].value;
  const double y = tape.entries[b].value;
  // GAP 1: a larger x makes more of it, a larger y less.
  return tape.record(x / y, {{a, 1 / y}, {b, -x / (y * y)}});
}

std::size_t tanh_of(Tape& tape, std::size_t a) {
  const double r = std::tanh(tape.entries[a].value);
  // GAP 2: steepest in the middle, flat where r is near 1 or -1.
  return tape.record(r, {{a, 1 - r * r}});
}

void backward(Tape& tape, std::size_t root) {
  // GAP 3: what comes after the root cannot have made it, so the walk begins there.
  for (Entry& entry : tape.entries) {
    entry.gradient = 0;
  }
  tape.entries[root].gradient = 1;
  for (std::size_t i = root + 1; i-- > 0;) {
    const Entry& entry = tape.entries[i];
    for (const Parent& parent : entry.parents) {
      tape.entries[parent.entry].gradient += entry.gradient * parent.slope;
    }
  }
}
