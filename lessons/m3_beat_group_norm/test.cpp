// What your design must do, and a first comparison with group norm.

#include "exercise.h"

#include <norma/lab/lab.h>
#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "layer.h"

using namespace norma;  // NOLINT: a test reads better without prefixes

namespace {

Tensor images(uint64_t seed) {
  Generator generator(seed);
  return randn({2, 16, 5, 4}, {}, generator) + 1.0;
}

}  // namespace

TEST_CASE("gap 1: each image has sets of its own") {
  const NormSpec spec = my_sets(16);
  CHECK_MESSAGE(!spec.reduce.contains(0),
                "\n  reduce: axis 0 are the images of a batch. They must not share statistics.");
  CHECK_MESSAGE(spec.reduce.size() > 0, "\n  reduce: expected at least one axis, or nothing is normalized");
  CHECK_MESSAGE(spec.affine == Axes{1}, "\n  affine: expected {1}, a weight and a bias for each channel");
}

TEST_CASE("gap 1: the design is not group norm with 8 groups") {
  const Tensor x = images(1);
  const std::vector<float> yours = normalize(x, my_sets(16), ones({16}), zeros({16})).to_vector<float>();
  const std::vector<float> theirs = group_norm(x, 8, ones({16}), zeros({16})).to_vector<float>();
  double most = 0;
  for (size_t i = 0; i < yours.size(); ++i) {
    most = std::max(most, static_cast<double>(std::abs(yours[i] - theirs[i])));
  }
  CHECK_MESSAGE(most > 1e-3, "\n  For 16 channels your sets are those of group norm with 8 groups. Choose others.");
}

TEST_CASE("gap 2: an image alone gives what it gives in a batch") {
  const Tensor x = images(2);
  const auto design = [](const Tensor& t) { return my_design(t, ones({16}), zeros({16})).to_vector<float>(); };
  const std::vector<float> batch = design(x);
  for (const int64_t image : {0, 1}) {
    const std::vector<float> alone = design(narrow(x, 0, image, 1));
    const auto begin = batch.begin() + image * static_cast<int64_t>(alone.size());
    const bool same = std::equal(alone.begin(), alone.end(), begin,
                                 [](float a, float b) { return std::abs(a - b) <= 1e-4F * (1 + std::abs(b)); });
    CHECK_MESSAGE(same, "\n  Image ", image, " alone gives other numbers than in its batch.\n",
                  "  Your design must do without axis 0, on which batch norm rests.");
  }
}

TEST_CASE("gap 2: check-norm finds nothing wrong (needs gap 1)") {
  register_my_design();
  (void)nn::make_norm("my_design", 8)->forward(randn({2, 8, 5, 4}));  // an error is said once, and not by each check
  const lab::NormCheckReport report = lab::check_norm("my_design", {.quick = true});
  CHECK_MESSAGE(report.passed(), "\n  check-norm says:\n", lab::to_text(report));
}

TEST_CASE("gap 3: verdicts") {
  const auto check = [](const std::vector<double>& mine, double margin, bool right) {
    CHECK_MESSAGE(beats_or_matches(mine, {80, 80, 80}, margin) == right, "\n  accuracies ", fmt::format("{}", mine),
                  " against 80, 80, 80, margin ", margin, ": expected ", right,
                  "\n  The lower end is mean - 4.303 * deviation / sqrt(3).");
  };
  check({81, 80, 82}, 2, true);   // 1 - 2.48 is above -2
  check({81, 80, 82}, 1, false);  // and below -1
  check({85, 85, 85}, 0, true);
  check({79, 79, 79}, 2, true);
  check({79, 79, 79}, 0.5, false);
  check({70, 95, 80}, 3, false);  // a good mean, and no certainty
}

TEST_CASE("gap 3: a first comparison in a small network (needs gaps 1 and 2)") {
  register_my_design();
  constexpr double kMargin = 12;  // points: four short runs say no more
  std::vector<double> mine;
  std::vector<double> theirs;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    mine.push_back(accuracy_with("my_design", seed));
    theirs.push_back(accuracy_with("group:8", seed));
  }
  CHECK_MESSAGE(beats_or_matches(mine, theirs, kMargin),
                fmt::format("\n  the interval is not above -{} points\n  yours:      {::.1f}\n  group norm: {::.1f}\n"
                            "  If you now try another design, count it: with k designs, each has 0.05 / k, so the\n"
                            "  interval of each must be wider. Trying until one passes finds luck (lesson 10).",
                            kMargin, mine, theirs));
}
