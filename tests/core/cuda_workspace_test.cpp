#include "core/cuda/workspace.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

// Which plan a library's call gets where memory is short, with plans that are numbers and memory that is none.

namespace norma::test {
namespace {

struct FakePlan {
  std::string name;
  int64_t workspace_bytes = 0;
};

/// In the order of preference.
const std::vector<FakePlan> kPlans = {{"fastest", 500}, {"fast", 800}, {"slow", 200}, {"other", 200}, {"slowest", 40}};

std::optional<FakePlan> best_within(int64_t bytes) {
  const auto found =
      std::find_if(kPlans.begin(), kPlans.end(), [&](const FakePlan& plan) { return plan.workspace_bytes <= bytes; });
  return found == kPlans.end() ? std::nullopt : std::optional(*found);
}

struct Memory {
  int64_t bytes;
  std::vector<int64_t> asked = {};

  int64_t operator()(int64_t wanted) {
    asked.push_back(wanted);
    if (wanted > bytes) {
      throw OutOfMemory("no memory for " + std::to_string(wanted));
    }
    return wanted;
  }
};

}  // namespace

TEST_CASE("cuda workspace: where memory is short, the next plan that wants less") {
  const auto plan_with = [](int64_t bytes, const std::vector<int64_t>& asked) {
    Memory memory{.bytes = bytes};
    FakePlan plan = kPlans.front();
    CHECK(cuda::allocate_workspace(plan, best_within, memory) == plan.workspace_bytes);
    CHECK(memory.asked == asked);
    return plan.name;
  };
  CHECK(plan_with(500, {500}) == "fastest");
  CHECK(plan_with(499, {500, 200}) == "slow");
  CHECK(plan_with(40, {500, 200, 40}) == "slowest");
}

TEST_CASE("cuda workspace: where no plan wants less, the memory that is missing is named") {
  Memory memory{.bytes = 39};
  FakePlan plan = kPlans.front();
  CHECK(error_of([&] { cuda::allocate_workspace(plan, best_within, memory); }) == "no memory for 40");
  CHECK(memory.asked == std::vector<int64_t>{500, 200, 40});

  Memory none{.bytes = -1};
  FakePlan without{.name = "without"};
  int smaller = 0;
  const auto count = [&](int64_t) {
    ++smaller;
    return std::optional<FakePlan>();
  };
  CHECK(error_of([&] { cuda::allocate_workspace(without, count, none); }) == "no memory for 0");
  CHECK(smaller == 0);
}

}  // namespace norma::test
