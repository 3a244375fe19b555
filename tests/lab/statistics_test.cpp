#include "lab/statistics/statistics.h"
#include "data/json.h"
#include "error_text.h"
#include "files.h"
#include "json.h"
#include "paths.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

// The figures of tests/reference/make_statistics.py (scipy and rliable), and what follows from definitions.

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

const nlohmann::json& reference() {
  static const nlohmann::json json = parse_json(read_file(source_folder() / "tests/reference/statistics.json"));
  return json;
}

std::vector<double> differences_of(const nlohmann::json& runs) {
  const auto first = runs["first"].get<std::vector<double>>();
  const auto second = runs["second"].get<std::vector<double>>();
  std::vector<double> differences;
  for (size_t i = 0; i < first.size(); ++i) {
    differences.push_back(first[i] - second[i]);
  }
  return differences;
}

}  // namespace

TEST_CASE("statistics: interquartile mean and probability of improvement are rliable's") {
  REQUIRE(reference()["runs"].size() == 6);
  for (const auto& runs : reference()["runs"]) {
    const auto first = runs["first"].get<std::vector<double>>();
    const auto second = runs["second"].get<std::vector<double>>();
    CHECK(interquartile_mean(first) == doctest::Approx(runs["iqm"][0].get<double>()).epsilon(1e-12));
    CHECK(interquartile_mean(second) == doctest::Approx(runs["iqm"][1].get<double>()).epsilon(1e-12));
    CHECK(probability_of_improvement(first, second) ==
          doctest::Approx(runs["improvement"].get<double>()).epsilon(1e-12));
  }
  CHECK(interquartile_mean({3}) == 3);
  CHECK(interquartile_mean({0, 1, 2, 100}) == 1.5);
  CHECK(probability_of_improvement({1, 1}, {1, 1}) == 0.5);
}

TEST_CASE("statistics: the correlation of pairs is scipy's, with Fisher's interval") {
  for (const auto& runs : reference()["runs"]) {
    const auto found = correlation_of(runs["first"], runs["second"], 0.05);
    REQUIRE(found.has_value());
    CHECK(found->value == doctest::Approx(runs["correlation"][0].get<double>()).epsilon(1e-9));
    CHECK(found->low == doctest::Approx(runs["correlation"][1].get<double>()).epsilon(1e-9));
    CHECK(found->high == doctest::Approx(runs["correlation"][2].get<double>()).epsilon(1e-9));
  }
  const auto three = correlation_of({1, 2, 3}, {1, 3, 2}, 0.05);
  REQUIRE(three.has_value());
  CHECK(three->low == -1);
  CHECK(three->high == 1);
  CHECK_FALSE(correlation_of({1}, {1}, 0.05).has_value());
  CHECK_FALSE(correlation_of({1, 1, 1}, {1, 2, 3}, 0.05).has_value());
  CHECK(correlation_of({1, 2, 3, 4}, {2, 4, 6, 8}, 0.05)->high == 1);
}

TEST_CASE("statistics: without images, interval, p and equality are those of Student's t") {
  for (const auto& runs : reference()["runs"]) {
    const Scatter scatter = scatter_of(differences_of(runs));
    const Decision decision = decide_by_mean(scatter, 1);
    CHECK(decision.low == doctest::Approx(runs["t"]["low"].get<double>()).epsilon(1e-9));
    CHECK(decision.high == doctest::Approx(runs["t"]["high"].get<double>()).epsilon(1e-9));
    CHECK(decision.chance == doctest::Approx(runs["t"]["chance"].get<double>()).epsilon(1e-9));
    // Two one-sided tests at the chance that scipy gives are just about to show equality.
    const auto equal = runs["equal"].get<double>();
    if (equal < 0.5) {
      CHECK(is_within(scatter, scatter.seeds, 0.3, equal + 1e-6));
      CHECK_FALSE(is_within(scatter, scatter.seeds, 0.3, equal - 1e-6));
    }
  }
}

TEST_CASE("statistics: McNemar's exact test is scipy's two-sided sign test") {
  REQUIRE(reference()["mcnemar"].size() == 7);
  for (const auto& one : reference()["mcnemar"]) {
    const auto first = one[0].get<size_t>();
    const auto second = one[1].get<size_t>();
    train::ImageBits a(first + second + 7, true);
    train::ImageBits b(a);
    for (size_t i = 0; i < first + second; ++i) {
      (i < first ? b : a)[i] = false;
    }
    a[first + second] = b[first + second] = false;
    const Mcnemar found = mcnemar(a, b);
    CHECK(found.only_first == static_cast<int64_t>(first));
    CHECK(found.only_second == static_cast<int64_t>(second));
    CHECK(found.chance == doctest::Approx(one[2].get<double>()).epsilon(1e-9));
  }
  CHECK(error_of([] {
          mcnemar({true}, {true, false});
        }) == "mcnemar: second: expected bits of 1 images, as first has, got 2");
}

TEST_CASE("statistics: the variances of seeds and of images are those of a crossed design") {
  REQUIRE(reference()["images"].size() == 4);
  for (const auto& one : reference()["images"]) {
    const auto differences = one["differences"].get<std::vector<ImageDifferences>>();
    const Scatter scatter = scatter_of(differences);
    CHECK(scatter.seeds == static_cast<int64_t>(differences.size()));
    CHECK(scatter.images == 40);
    CHECK(scatter.difference == doctest::Approx(one["difference"].get<double>()));
    CHECK(scatter.seed_variance == doctest::Approx(one["seed_variance"].get<double>()));
    CHECK(scatter.image_variance == doctest::Approx(one["image_variance"].get<double>()));
  }
  CHECK(error_of([] {
          scatter_of(std::vector<ImageDifferences>{{1, 0}, {1}});
        }) == "scatter_of: differences: expected 2 images for each pair, got 1");
  CHECK(error_of([] { scatter_of(std::vector<ImageDifferences>()); }) ==
        "scatter_of: differences: expected a pair or more with two images or more");
}

TEST_CASE("statistics: interval, p and equality agree where images count, too") {
  Scatter scatter{.difference = 1, .seed_variance = 0.5, .image_variance = 0.04, .seeds = 5, .images = 1000};
  const double chance = chance_of(scatter);
  CHECK(half_width(scatter, 5, chance) == doctest::Approx(1).epsilon(1e-6));
  Scatter no_images = scatter;
  no_images.image_variance = 0;
  CHECK(chance > chance_of(no_images));
  // More seeds make the part of the seeds smaller, and leave that of the images.
  CHECK(half_width(scatter, 1'000'000, 0.05) == doctest::Approx(1.959964 * 0.2).epsilon(1e-3));
  scatter.difference = 1e6;
  CHECK(chance_of(scatter) < 1e-12);
  scatter.difference = 0;
  CHECK(chance_of(scatter) == doctest::Approx(1));
  // Found and equal: a difference that is there, and small.
  const Decision both =
      decide_by_mean({.difference = 0.2, .seed_variance = 1e-4, .image_variance = 1e-4, .seeds = 5, .images = 9}, 1);
  CHECK(both.found());
  CHECK(both.equal);
  const Decision neither = decide_by_mean({.difference = 0.2, .seed_variance = 1, .seeds = 5}, 1);
  CHECK_FALSE(neither.found());
  CHECK_FALSE(neither.equal);
}

TEST_CASE("statistics: how many more seeds would decide") {
  // statsmodels 0.14: TTestPower().solve_power(1, alpha=0.05, power=0.8) is 9.94 pairs.
  Scatter scatter{.difference = 1, .seed_variance = 1, .seeds = 4};
  CHECK(outlook_of(scatter, 0.3, 0.05).more_seeds == 6);
  CHECK(power_of(scatter, 9, 0.3, 0.05) < kPower);
  CHECK(power_of(scatter, 10, 0.3, 0.05) >= kPower);
  // No difference, and 0.3 points are three deviations: with two seeds, t is 6.3.
  scatter = {.difference = 0, .seed_variance = 0.01, .seeds = 2};
  const auto equal = outlook_of(scatter, 0.3, 0.05).more_seeds;
  REQUIRE(equal.has_value());
  CHECK(*equal == 1);
  CHECK(power_of(scatter, 2, 0.3, 0.05) < kPower);
  CHECK(power_of(scatter, 3, 0.3, 0.05) >= kPower);
  // At the margin nothing decides soon.
  scatter = {.difference = 0.3, .seed_variance = 100, .seeds = 5};
  CHECK_FALSE(outlook_of(scatter, 0.3, 0.05).more_seeds.has_value());
  CHECK_FALSE(outlook_of(scatter, 0.3, 0.05).images_limit);
  // Too few images, whatever the seeds.
  scatter = {.difference = 0.2, .seed_variance = 0.01, .image_variance = 1, .seeds = 5, .images = 50};
  CHECK(outlook_of(scatter, 0.3, 0.05).images_limit);
  scatter.image_variance = 1e-4;
  CHECK_FALSE(outlook_of(scatter, 0.3, 0.05).images_limit);
  CHECK(outlook_of(scatter, 0.3, 0.05).more_seeds.has_value());
  scatter.seeds = 2000;  // more than are looked at
  CHECK_FALSE(outlook_of(scatter, 0.3, 0.05).more_seeds.has_value());
}

TEST_CASE("statistics: the bootstrap draws seeds and images together") {
  // All alike: every sample is the mean. One image of two: each sample's mean is 0, 50 or 100.
  const Interval fixed = bootstrap_difference({{1, 1, 1}, {1, 1, 1}});
  CHECK(fixed.low == doctest::Approx(100));
  CHECK(fixed.high == doctest::Approx(100));
  CHECK(bootstrap_difference({{0, 0, 0}, {0, 0, 0}}).high == 0);
  const Interval images = bootstrap_difference({{1, 0}, {1, 0}});
  CHECK(images.low == doctest::Approx(0));
  CHECK(images.high == doctest::Approx(100));
  const Interval seeds = bootstrap_difference({{1, 1}, {-1, -1}});
  CHECK(seeds.low == doctest::Approx(-100));
  CHECK(seeds.high == doctest::Approx(100));
  // The deviation of means of 1000 images, a tenth of which are 1: 100 sqrt(0.1 * 0.9 / 1000) = 0.949 points.
  std::vector<ImageDifferences> many(3, ImageDifferences(1000));
  for (ImageDifferences& one : many) {
    for (size_t i = 0; i < 100; ++i) {
      one[i] = 1;
    }
  }
  const Interval tenth = bootstrap_difference(many, {.resamples = 4000});
  CHECK(tenth.high - tenth.low == doctest::Approx(2 * 1.96 * 0.949).epsilon(0.06));
  CHECK((tenth.high + tenth.low) / 2 == doctest::Approx(10).epsilon(0.02));
  const Interval again = bootstrap_difference(many, {.resamples = 4000});
  CHECK(again.low == tenth.low);
  const Interval certain = bootstrap_figure({2, 3}, {0, 1}, probability_of_improvement);
  CHECK(certain.low == 1);
  CHECK(certain.high == 1);
}
