// What your answers must do: steps in order, means of unequal parts, and a variance that lesson 7 would accept.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-6 * (1 + std::abs(b));
}

Statistics statistics_of(const std::vector<double>& x) {
  Statistics result{.count = static_cast<int64_t>(x.size())};
  for (const double value : x) {
    result.mean += value / static_cast<double>(x.size());
  }
  for (const double value : x) {
    result.var += (value - result.mean) * (value - result.mean) / static_cast<double>(x.size());
  }
  return result;
}

void check_statistics(const std::string& of, const std::vector<std::vector<double>>& parts) {
  std::vector<Statistics> statistics;
  std::vector<double> everything;
  double counted = 0;
  double plain = 0;
  for (const std::vector<double>& part : parts) {
    statistics.push_back(part.empty() ? Statistics{} : statistics_of(part));
    everything.insert(everything.end(), part.begin(), part.end());
    counted += statistics.back().var * static_cast<double>(part.size());
    plain += statistics.back().mean / static_cast<double>(parts.size());
  }
  const Statistics right = statistics_of(everything);
  counted /= static_cast<double>(right.count);
  const Statistics yours = of_all(statistics);
  REQUIRE_MESSAGE(yours.count == right.count, "\n  ", of, ": expected count ", right.count, ", yours is ", yours.count);
  INFO("\n  ", of, ": expected mean ", right.mean, ", yours is ", yours.mean,
       std::string(!near(right.mean, plain) && near(yours.mean, plain) ? "\n  A process counts by its numbers" : ""));
  REQUIRE(near(yours.mean, right.mean));
  const double n = static_cast<double>(right.count);
  const bool lacks = !near(counted, right.var) && near(yours.var, counted);
  INFO("\n  ", of, ": expected variance ", right.var, ", yours is ", yours.var,
       std::string(lacks              ? "\n  Yours is the mean of the variances: the distance of the means counts, too"
                   : right.mean > 1e6 ? "\n  Do you subtract two large numbers? (lesson 7)"
                   : near(yours.var, right.var * n / (n - 1)) ? "\n  Yours divides by n - 1: lesson 5 divides by n"
                                                              : ""));
  REQUIRE(near(yours.var, right.var));
}

}  // namespace

TEST_CASE("gap 1: a step with finite gradients") {
  std::vector<float> weights = {1, 2};
  LossScale state{.scale = 8};
  const bool changed = scaled_step(weights, {4, -8}, 0.5, 2, state);
  REQUIRE_MESSAGE(changed, "\n  gradients 4 and -8 are finite: the weights must change, and the result is true");
  REQUIRE_MESSAGE(
      (weights[0] == 0.75 && weights[1] == 2.5),
      "\n  weights 1 and 2, gradients 4 and -8 of the scaled loss, scale 8, rate 0.5: expected 0.75 and 2.5, yours ",
      weights[0], " and ", weights[1],
      std::string(weights[0] == -1       ? "\n  Divide the gradients by the scale"
                  : weights[0] == 0.875F ? "\n  Yours divides by 16: by the scale of the next step, not of this one"
                                         : ""));
  CHECK_MESSAGE(state.scale == 8, "\n  after 1 good step of 2 the scale must stay 8, yours is ", state.scale);
  scaled_step(weights, {4, -8}, 0.5, 2, state);
  CHECK_MESSAGE(weights[0] == 0.5,
                "\n  the step that doubles the scale still belongs to the old one: expected a weight ",
                "of 0.5, yours is ", weights[0]);
  CHECK_MESSAGE(state.scale == 16, "\n  after 2 good steps of 2 the scale must be 16, yours is ", state.scale);
  CHECK_MESSAGE(state.good_steps == 0, "\n  counting begins anew after the scale has doubled");
}

TEST_CASE("gap 1: a step whose gradients are not finite") {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> weights = {1, 2};
    LossScale state{.scale = 8, .good_steps = 1};
    const bool changed = scaled_step(weights, {4, bad}, 0.5, 2, state);
    INFO("\n  gradients 4 and ", bad, ", scale 8");
    REQUIRE_MESSAGE(!changed, "\n  no weight may change, and the result is false");
    REQUIRE_MESSAGE((weights[0] == 1 && weights[1] == 2), "\n  the first weight has changed before you have seen the ",
                    std::string("second gradient: look at all of them first"));
    CHECK_MESSAGE(state.scale == 4, "\n  the scale must be halved to 4, yours is ", state.scale);
    CHECK_MESSAGE(state.good_steps == 0, "\n  good steps in a row: a step that was left out ends the row");
  }
}

TEST_CASE("gap 2: the gradient of all images") {
  const auto check = [](const std::string& what, const std::vector<Part>& parts, double expected) {
    const std::vector<double> yours = averaged(parts);
    REQUIRE(yours.size() == 2);
    double sum = 0;
    double plain = 0;
    for (const Part& part : parts) {
      sum += part.gradient[1];
      plain += part.gradient[1] / static_cast<double>(parts.size());
    }
    INFO("\n  ", what, ": expected ", expected, ", yours is ", yours[1],
         std::string(std::isnan(yours[1])    ? "\n  0 times NaN is NaN: leave out a process without images"
                     : near(yours[1], sum)   ? "\n  Yours is the sum of the means"
                     : near(yours[1], plain) ? "\n  Yours is the plain mean: a process counts by its images"
                                             : ""));
    REQUIRE(near(yours[1], expected));
  };
  check("4 images with gradient 1, 4 with 3", {{4, {0, 1}}, {4, {0, 3}}}, 2);
  check("6 images with gradient 1, 2 with 3", {{6, {0, 1}}, {2, {0, 3}}}, 1.5);
  check("6 with 1, none with NaN, 2 with 3", {{6, {0, 1}}, {0, {NAN, NAN}}, {2, {0, 3}}}, 1.5);
}

TEST_CASE("gap 3: the statistics of all processes") {
  check_statistics("4 6 and 1 3", {{4, 6}, {1, 3}});
  check_statistics("1 3 5 and 5 7", {{1, 3, 5}, {5, 7}});
  check_statistics("nothing, 1 3 5, nothing, 5 7 and 2", {{}, {1, 3, 5}, {}, {5, 7}, {2}});
  check_statistics("100000001 100000003 and 100000005", {{100000001, 100000003}, {100000005}});
}
