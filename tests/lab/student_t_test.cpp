#include "lab/report/decision.h"

#include <doctest/doctest.h>

using norma::lab::student_t;
using norma::lab::student_t_chance;

TEST_CASE("student_t: the quantiles of the printed tables") {
  CHECK(student_t(1, 0.05) == doctest::Approx(12.7062).epsilon(1e-5));
  CHECK(student_t(1, 0.01) == doctest::Approx(63.6567).epsilon(1e-5));
  CHECK(student_t(2, 0.05) == doctest::Approx(4.30265).epsilon(1e-5));
  CHECK(student_t(2, 0.01) == doctest::Approx(9.92484).epsilon(1e-5));
  CHECK(student_t(10, 0.05) == doctest::Approx(2.22814).epsilon(1e-5));
  CHECK(student_t(30, 0.001) == doctest::Approx(3.64596).epsilon(1e-5));
  CHECK(student_t(1000, 0.05) == doctest::Approx(1.96234).epsilon(1e-5));
}

TEST_CASE("student_t: chances of the printed tables, on both sides of 0") {
  CHECK(student_t_chance(1, 12.7062) == doctest::Approx(0.05).epsilon(1e-5));
  CHECK(student_t_chance(2, -9.92484) == doctest::Approx(0.01).epsilon(1e-5));
  CHECK(student_t_chance(30, 3.64596) == doctest::Approx(0.001).epsilon(1e-4));
  CHECK(student_t_chance(7, 0) == doctest::Approx(1));
}
