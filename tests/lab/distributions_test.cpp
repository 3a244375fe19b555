#include "lab/statistics/statistics.h"

#include "core/random.h"
#include "data/json.h"
#include "files.h"
#include "json.h"
#include "paths.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace norma::lab;
using namespace norma::test;

TEST_CASE("distributions: scipy's quantiles, and their inverse") {
  const auto reference = parse_json(read_file(source_folder() / "tests/reference/statistics.json"));
  REQUIRE(reference["student_t"].size() == 16);
  for (const auto& one : reference["student_t"]) {
    const auto freedom = one[0].get<int64_t>();
    const auto chance = one[1].get<double>();
    CHECK(student_t(freedom, chance) == doctest::Approx(one[2].get<double>()).epsilon(1e-10));
    CHECK(student_t_chance(freedom, -one[2].get<double>()) == doctest::Approx(chance).epsilon(1e-10));
  }
  REQUIRE(reference["normal"].size() == 3);
  for (const auto& one : reference["normal"]) {
    CHECK(normal(one[0].get<double>()) == doctest::Approx(one[1].get<double>()).epsilon(1e-10));
    CHECK(2 * normal_below(-one[1].get<double>()) == doctest::Approx(one[0].get<double>()).epsilon(1e-10));
  }
}

TEST_CASE("distributions: tosses of a coin") {
  CHECK(heads_at_most(5, -1) == 0);
  CHECK(heads_at_most(5, 0) == doctest::Approx(1 / 32.0));
  CHECK(heads_at_most(5, 1) == doctest::Approx(6 / 32.0));
  CHECK(heads_at_most(5, 5) == doctest::Approx(1));
}

TEST_CASE("distributions: the labels of one sample of 1000 leave more room below the loss of a guess") {
  // torch 2.15, by bisection of torch.special.gammaincc(df / 2, x / 2): χ² of 9 and 99 degrees of freedom at 0.001.
  CHECK(*guessing_margin(10, 2000) == doctest::Approx(27.877164871256568 / 4000).epsilon(1e-10));
  CHECK(*guessing_margin(100, 500) == doctest::Approx(148.23035916510162 / 1000).epsilon(1e-10));
  CHECK_FALSE(guessing_margin(10, 49));
  CHECK_FALSE(guessing_margin(1, 49));
  CHECK_FALSE(guessing_margin(0, 49));

  constexpr int64_t kClasses = 10;
  constexpr int64_t kImages = 200;
  constexpr int kSamples = 20'000;
  norma::Generator random(1);
  int beyond = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> counts(kClasses);
    for (int64_t i = 0; i < kImages; ++i) {
      ++counts[random.below(kClasses)];
    }
    double entropy = 0;
    for (const double count : counts) {
      entropy -= count > 0 ? count / kImages * std::log(count / kImages) : 0;
    }
    beyond += std::log(kClasses) - entropy > *guessing_margin(kClasses, kImages) ? 1 : 0;
  }
  CHECK(beyond > 8);  // 20 are expected, give or take 4.5
  CHECK(beyond < 40);
}
