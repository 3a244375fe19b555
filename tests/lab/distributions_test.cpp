#include "lab/statistics/statistics.h"

#include "data/json.h"
#include "files.h"
#include "json.h"
#include "paths.h"

#include <doctest/doctest.h>

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
