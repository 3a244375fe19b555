#include "data/augment/color.h"
#include "data/augment/policy.h"
#include "data/pictures.h"
#include "error_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::picture;

namespace {

constexpr int kDraws = 10'000;

std::vector<PolicyStep> steps_of(const std::string& text, int64_t index, const PolicyOptions& options = {}) {
  Draw draw({.seed = 11, .epoch = 0, .index = index}, DrawFor::policy);
  return Policy(parse_policy("test", text), options).draw(draw, 100, 200);
}

/// The arguments of each op over kDraws images, sorted.
std::map<PolicyOp, std::vector<double>> arguments_of(const std::string& text) {
  std::map<PolicyOp, std::vector<double>> arguments;
  for (int i = 0; i < kDraws; ++i) {
    for (const PolicyStep& step : steps_of(text, i)) {
      arguments[step.op].push_back(step.argument);
    }
  }
  for (auto& [op, values] : arguments) {
    std::sort(values.begin(), values.end());
  }
  return arguments;
}

/// Whether a count of kDraws tries lies within five standard deviations of its expectation.
bool is_count(size_t count, double tries, double probability) {
  return std::abs(static_cast<double>(count) - tries * probability) <=
         5 * std::sqrt(tries * probability * (1 - probability));
}

double share_below(const std::vector<double>& values, double limit) {
  return static_cast<double>(std::lower_bound(values.begin(), values.end(), limit) - values.begin()) /
         static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("rand augment: ops and arguments of rand-m9-p1") {
  const auto arguments = arguments_of("rand-m9-n2-p1");
  CHECK(arguments.size() == 15);
  for (const auto& [op, values] : arguments) {
    CAPTURE(name_of(op));
    CHECK(is_count(values.size(), 2.0 * kDraws, 1.0 / 15));
  }
  // timm: level = 9 / 10. What has a sign has either equally often, and nothing else.
  const std::map<PolicyOp, double> either_sign = {{PolicyOp::rotate, 27},
                                                  {PolicyOp::shear_x, 0.27},
                                                  {PolicyOp::shear_y, 0.27},
                                                  {PolicyOp::translate_x, 0.405 * 200},
                                                  {PolicyOp::translate_y, 0.405 * 100}};
  for (const auto& [op, expected] : either_sign) {
    CAPTURE(name_of(op));
    const std::vector<double>& values = arguments.at(op);
    for (const double value : values) {
      CHECK(std::abs(value) == doctest::Approx(expected).epsilon(1e-12));
    }
    CHECK(is_count(static_cast<size_t>(share_below(values, 0) * static_cast<double>(values.size()) + 0.5),
                   static_cast<double>(values.size()), 0.5));
  }
  const std::map<PolicyOp, double> fixed = {
      {PolicyOp::posterize, 3},   {PolicyOp::solarize, 230},    {PolicyOp::solarize_add, 99}, {PolicyOp::color, 1.72},
      {PolicyOp::contrast, 1.72}, {PolicyOp::brightness, 1.72}, {PolicyOp::sharpness, 1.72},  {PolicyOp::invert, 0}};
  for (const auto& [op, expected] : fixed) {
    CAPTURE(name_of(op));
    CHECK(arguments.at(op).front() == doctest::Approx(expected).epsilon(1e-12));
    CHECK(arguments.at(op).back() == doctest::Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("rand augment: inc, p, mstd and mmax") {
  const auto increasing = arguments_of("rand-m9-p1-inc1");
  CHECK(increasing.at(PolicyOp::posterize).front() == 1);
  CHECK(increasing.at(PolicyOp::solarize).front() == 26);
  CHECK(increasing.at(PolicyOp::color).front() == doctest::Approx(0.19));
  CHECK(increasing.at(PolicyOp::color).back() == doctest::Approx(1.81));
  CHECK(std::abs(share_below(increasing.at(PolicyOp::color), 1) - 0.5) < 0.07);  // of about 1300
  CHECK(arguments_of("rand-m10-p1-inc1").at(PolicyOp::brightness).front() == doctest::Approx(0.1));

  size_t count = 0;
  for (const auto& [op, values] : arguments_of("rand-n3-p0.25")) {
    count += values.size();
  }
  CHECK(is_count(count, 3.0 * kDraws, 0.25));
  CHECK(arguments_of("rand-p0").empty());

  // Solarize with inc1 is 256 - trunc(25.6 m): m around 9 with deviation 0.5, cut off at 10.
  const auto around = arguments_of("rand-m9-mstd0.5-inc1-p1").at(PolicyOp::solarize);
  CHECK(around.front() == 0);
  CHECK(std::abs(share_below(around, 0.5) - 0.0228) < 0.025);                  // m >= 10: two deviations above
  CHECK(std::abs(share_below(around, 256 - 0.9 * 256 + 1) - 0.5) < 0.07);      // m >= 9
  CHECK(std::abs(share_below(around, 256 - 0.85 * 256 + 1) - 0.8413) < 0.06);  // m >= 8.5
  const auto evenly = arguments_of("rand-m8-mstd101-p1").at(PolicyOp::rotate);
  CHECK(evenly.front() > -24);
  CHECK(evenly.back() < 24);
  CHECK(std::abs(share_below(evenly, -12) - 0.25) < 0.07);
  CHECK(std::abs(share_below(evenly, 12) - 0.75) < 0.07);
  CHECK(arguments_of("rand-m15-p1").at(PolicyOp::rotate).back() == doctest::Approx(30));
  CHECK(arguments_of("rand-m15-mmax12-p1").at(PolicyOp::rotate).back() == doctest::Approx(36));
}

TEST_CASE("trivial augment: ops and arguments of torchvision's ta_wide") {
  const auto arguments = arguments_of("ta_wide");
  CHECK(arguments.size() == 14);
  CHECK(arguments.count(PolicyOp::invert) == 0);
  const std::map<PolicyOp, std::pair<double, double>> ranges = {
      {PolicyOp::shear_x, {-0.99, 0.99}}, {PolicyOp::shear_y, {-0.99, 0.99}}, {PolicyOp::translate_x, {-32, 32}},
      {PolicyOp::translate_y, {-32, 32}}, {PolicyOp::rotate, {-135, 135}},    {PolicyOp::brightness, {0.01, 1.99}},
      {PolicyOp::color, {0.01, 1.99}},    {PolicyOp::contrast, {0.01, 1.99}}, {PolicyOp::sharpness, {0.01, 1.99}},
      {PolicyOp::posterize, {2, 8}},      {PolicyOp::solarize, {0, 255}},     {PolicyOp::autocontrast, {0, 0}},
      {PolicyOp::equalize, {0, 0}},       {PolicyOp::identity, {0, 0}}};
  for (const auto& [op, range] : ranges) {
    CAPTURE(name_of(op));
    std::vector<double> values = arguments.at(op);
    CHECK(is_count(values.size(), kDraws, 1.0 / 14));
    CHECK(values.front() == doctest::Approx(range.first).epsilon(1e-6));
    CHECK(values.back() == doctest::Approx(range.second).epsilon(1e-6));
    // An even distribution has half of its numbers below the middle.
    const double middle = (range.first + range.second) / 2;
    if (range.first < range.second) {
      const double below = (share_below(values, middle - 1e-9) + share_below(values, middle + 1e-9)) / 2;
      CHECK(std::abs(below - 0.5) < 0.1);
    }
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const size_t kinds = op == PolicyOp::posterize     ? 7
                         : range.first == range.second ? 1
                         : op == PolicyOp::solarize    ? 31
                                                       : 61;
    CHECK(values.size() <= kinds + (kinds == 61 ? 1 : 0));  // the shears have 0 and -0 too
    CHECK(values.size() >= kinds - (kinds == 61 ? 1 : 0));
  }
}

TEST_CASE("policy: interpolations, fill, and the same result for any order of calls") {
  std::map<Interpolation, int> interpolations;
  for (int i = 0; i < 1000; ++i) {
    for (const PolicyStep& step : steps_of("rand-p1", i)) {
      if (step.op == PolicyOp::rotate) {
        ++interpolations[step.interpolation];
      }
      CHECK(steps_of("ta_wide", i, {.interpolation = Interpolation::nearest})[0].interpolation ==
            Interpolation::nearest);
    }
  }
  CHECK(interpolations.size() == 2);
  CHECK(interpolations[Interpolation::bilinear] > 30);
  CHECK(interpolations[Interpolation::bicubic] > 30);

  const Image image = picture(9, 12, 3);
  const Policy policy(parse_policy("test", "rand-m9-mstd0.5-inc1-p1-n4"));
  const auto result = [&](int64_t index) {
    Draw draw({.seed = 1, .epoch = 4, .index = index}, DrawFor::policy);
    return policy.apply(image, draw).pixels;
  };
  std::vector<std::vector<uint8_t>> forwards;
  for (int64_t i = 0; i < 20; ++i) {
    forwards.push_back(result(i));
  }
  for (int64_t i = 19; i >= 0; --i) {
    CHECK(result(i) == forwards[static_cast<size_t>(i)]);
  }
  CHECK(std::count(forwards.begin(), forwards.end(), forwards[0]) == 1);

  const PolicyStep step{.op = PolicyOp::translate_x, .argument = 12};
  const Image filled = apply(step, image, {1, 2, 3});
  CHECK(int{filled.at(4, 5, 0)} == 1);
  CHECK(int{filled.at(4, 5, 2)} == 3);
  CHECK(apply({.op = PolicyOp::color, .argument = 0.3}, image, {}).pixels == adjust_saturation(image, 0.3).pixels);
}

TEST_CASE("policy: every op on one pixel and on grey images") {
  for (const Image& image : {picture(1, 1, 1), picture(1, 1, 3), picture(2, 7, 1)}) {
    for (const char* text : {"rand-m10-p1-n3-mstd2", "rand-m10-p1-n3-inc1", "ta_wide"}) {
      const Policy policy(parse_policy("test", text));
      for (int64_t i = 0; i < 300; ++i) {
        Draw draw({.seed = 3, .epoch = 0, .index = i}, DrawFor::policy);
        const Image result = policy.apply(image, draw);
        CHECK(result.pixels.size() == image.pixels.size());
      }
    }
  }
}

TEST_CASE("policy: texts") {
  const RandAugmentOptions options = parse_rand_augment("x", "rand-inc1-mstd0.5-m7-n3-p0.75-mmax12");
  CHECK(options.magnitude == 7);
  CHECK(options.num_layers == 3);
  CHECK(options.probability == 0.75);
  CHECK(options.magnitude_std == 0.5);
  CHECK(options.magnitude_max == 12);
  CHECK(options.increasing);
  const RandAugmentOptions plain = parse_rand_augment("x", "rand");
  CHECK(plain.magnitude == 10);
  CHECK(plain.num_layers == 2);
  CHECK(plain.probability == 0.5);
  CHECK_FALSE(plain.increasing);
  CHECK(parse_rand_augment("x", "rand-mstd101").magnitude_std == std::numeric_limits<double>::infinity());

  const auto error = [](const std::string& text) { return error_of([&] { parse_policy("train: aa", text); }); };
  CHECK(error("augmix") ==
        "train: aa: unknown policy 'augmix'; expected ta_wide, or rand with parts as in rand-m9-mstd0.5-inc1");
  CHECK(error("") == "train: aa: unknown policy ''; expected ta_wide, or rand with parts as in rand-m9-mstd0.5-inc1");
  const std::string known =
      "; known: m (magnitude), n (ops for each image), p (probability of each), mstd, mmax (spread and upper end of "
      "the "
      "magnitude), inc (0 or 1)";
  CHECK(error("rand-m9-q3") == "train: aa: rand-m9-q3: unknown key 'q3'" + known);
  CHECK(error("rand-m9-tweights") == "train: aa: rand-m9-tweights: unknown key 'tweights'" + known);
  CHECK(error("rand--m9") == "train: aa: rand--m9: unknown key ''" + known);
  CHECK(error("rand-m9-") == "train: aa: rand-m9-: expected a key and its number after the last '-'");
  CHECK(error("rand-") == "train: aa: rand-: expected a key and its number after the last '-'");
  CHECK(error("rand-m") == "train: aa: rand-m: m: expected a whole number from 0 to 1000, got none");
  CHECK(error("rand-m9.5") == "train: aa: rand-m9.5: m: expected a whole number from 0 to 1000, got 9.5");
  CHECK(error("rand-m9x") == "train: aa: rand-m9x: m: expected a whole number from 0 to 1000, got 9x");
  CHECK(error("rand-mmax0") == "train: aa: rand-mmax0: mmax: expected a whole number from 1 to 1000, got 0");
  CHECK(error("rand-n0") == "train: aa: rand-n0: n: expected a whole number from 1 to 100, got 0");
  CHECK(error("rand-p1.5") == "train: aa: rand-p1.5: p: expected a number from 0 to 1, got 1.5");
  CHECK(error("rand-inc2") == "train: aa: rand-inc2: inc: expected 0 or 1, got 2");
  CHECK(error("rand-mstd1e999") == "train: aa: rand-mstd1e999: mstd: expected a number of at least 0, got 1e999");
  CHECK(error("rand-m9-m8") == "train: aa: rand-m9-m8: m comes twice");
  CHECK(error("rand-m99999999999999999999") ==
        "train: aa: rand-m99999999999999999999: m: expected a whole number from 0 to 1000, got 99999999999999999999");
}
