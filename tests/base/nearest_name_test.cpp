#include "base/nearest_name.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

using norma::nearest_name;
using norma::unknown_name;

TEST_CASE("nearest_name: one replaced, missing, extra or swapped letter") {
  const std::vector<std::string> known = {"batch", "layer2d", "group", "instance"};
  CHECK(nearest_name("bath", known) == "batch");
  CHECK(nearest_name("layer", known) == "layer2d");
  CHECK(nearest_name("grroup", known) == "group");
  CHECK(nearest_name("instnace", known) == "instance");
  CHECK(nearest_name("GROUP", known) == "group");
}

TEST_CASE("nearest_name: a swap counts once, the first of equals wins, nothing known") {
  CHECK(nearest_name("ab", {"ax", "ba"}) == "ax");  // both at distance 1
  CHECK(nearest_name("abc", {"xyc", "acb"}) == "acb");
  CHECK(nearest_name("abc", {}).empty());
}

TEST_CASE("unknown_name: text") {
  CHECK(unknown_name("norm", "bath", {"batch"}) == "unknown norm 'bath'; did you mean 'batch'?");
  CHECK(unknown_name("norm", "bath", {}) == "unknown norm 'bath'");
}

TEST_CASE("nearest name: a million letters take no time") {
  const std::vector<std::string> known(300, std::string(50, 'b'));
  const auto begin = std::chrono::steady_clock::now();
  CHECK(unknown_name("norm", std::string(1'000'000, 'a'), known).size() < 300);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1));
}
