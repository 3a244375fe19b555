#include "lab/statistics/distributions.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/complement.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

#include <cmath>

namespace norma::lab {

namespace {

boost::math::students_t_distribution<double> student(int64_t freedom) {
  return boost::math::students_t_distribution<double>(static_cast<double>(freedom));
}

}  // namespace

double student_t(int64_t freedom, double chance) {
  return boost::math::quantile(boost::math::complement(student(freedom), chance / 2));
}

double student_t_chance(int64_t freedom, double t) {
  return 2 * boost::math::cdf(boost::math::complement(student(freedom), std::abs(t)));
}

double normal(double chance) {
  return boost::math::quantile(boost::math::complement(boost::math::normal(), chance / 2));
}

double normal_below(double z) {
  return boost::math::cdf(boost::math::normal(), z);
}

double heads_at_most(int64_t tosses, int64_t heads) {
  if (heads < 0) {
    return 0;
  }
  constexpr double kFair = 0.5;
  return boost::math::cdf(boost::math::binomial(static_cast<double>(tosses), kFair), static_cast<double>(heads));
}

std::pair<double, double> heads_interval(int64_t tosses, int64_t heads, double chance) {
  using Binomial = boost::math::binomial_distribution<double>;
  const auto trials = static_cast<double>(tosses);
  const auto successes = static_cast<double>(heads);
  return {Binomial::find_lower_bound_on_p(trials, successes, chance / 2),
          Binomial::find_upper_bound_on_p(trials, successes, chance / 2)};
}

}  // namespace norma::lab
