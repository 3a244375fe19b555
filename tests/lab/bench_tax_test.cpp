#include "lab/bench/benchmark.h"

#include "json.h"

#include <doctest/doctest.h>
#include <optional>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab::bench;

TEST_CASE("bench: the tax of norms that take turns is that of the middle round") {
  const auto made = [](const std::string& norm, std::vector<double> seconds) {
    BenchRow row{.model = "resnet18", .norm = norm};
    row.train = Measured{.step = spread_of(seconds), .seconds = seconds, .batch_size = 2};
    return row;
  };
  // The machine slows down by 2 in the second round, and a third program disturbs the last step of group.
  Benchmark benchmark;
  benchmark.options.modes = {Mode::train};
  benchmark.options.alternate = true;
  benchmark.rows = {made("batch", {1, 2, 1}), made("group:32", {1.25, 2.5, 9}), made("layer2d", {1, 2})};
  CHECK(norm_tax(benchmark, benchmark.rows[0], Mode::train)->share == 0);
  CHECK(norm_tax(benchmark, benchmark.rows[1], Mode::train)->share == doctest::Approx(0.2));
  CHECK(norm_tax(benchmark, benchmark.rows[2], Mode::train)->share ==
        doctest::Approx(1.0 / 3));  // other rounds: medians
  CHECK(!norm_tax(benchmark, benchmark.rows[1], Mode::infer));
  benchmark.options.alternate = false;
  CHECK(norm_tax(benchmark, benchmark.rows[1], Mode::train)->share == doctest::Approx(0.6));
  const auto json = test::parse_json(to_json(benchmark));
  CHECK(json[0]["norm"] == "batch");
  CHECK(json[0]["train_norm_tax"] == 0);
  benchmark.rows[0].norm = "instance";
  CHECK(!norm_tax(benchmark, benchmark.rows[1], Mode::train));
}

TEST_CASE("bench: the tax of many rounds comes with its interval") {
  Benchmark benchmark;
  benchmark.options.modes = {Mode::train};
  benchmark.options.alternate = true;
  BenchRow batch{.model = "resnet18", .norm = "batch"};
  BenchRow group{.model = "resnet18", .norm = "group:32"};
  std::vector<double> ones(8, 1.0);
  std::vector<double> longer;
  for (const double tax : {0.05, 0.01, 0.04, -0.02, 0.03, 0.02, 0.06, 0.0}) {
    longer.push_back(1 / (1 - tax));
  }
  batch.train = Measured{.step = spread_of(ones), .seconds = ones, .batch_size = 2};
  group.train = Measured{.step = spread_of(longer), .seconds = longer, .batch_size = 2};
  benchmark.rows = {batch, group};
  const std::optional<NormTax> tax = norm_tax(benchmark, benchmark.rows[1], Mode::train);
  REQUIRE(tax->rounds);
  CHECK(tax->share == doctest::Approx(0.025));
  CHECK(tax->rounds->low == doctest::Approx(-0.02));
  CHECK(tax->rounds->high == doctest::Approx(0.06));
  CHECK(!norm_tax(benchmark, benchmark.rows[0], Mode::train)->rounds);
  const auto json = test::parse_json(to_json(benchmark));
  CHECK(json[1]["train_norm_tax"] == 2.5);
  CHECK(json[1]["train_norm_tax_low"] == -2);
  CHECK(json[1]["train_norm_tax_high"] == 6);
  CHECK(!json[0].contains("train_norm_tax_low"));
  CHECK(to_table(benchmark).find(" 2.5 (-2.0 to 6.0) ") != std::string::npos);
}
