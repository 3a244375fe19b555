#pragma once

#include <cstdlib>

// A lesson's wrong.cpp answers its gaps wrongly, once for each number in NORMA_WRONG_ANSWER, and lessons.py checks that
// the tests say what the comment at its number demands. What is not wrong calls our answer, which stands in a namespace
// there: include first what solution.cpp includes.

inline int wrong_answer() {
  const char* number = std::getenv("NORMA_WRONG_ANSWER");
  return number == nullptr ? 0 : std::atoi(number);
}
