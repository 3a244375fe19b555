#include "parity/program.h"
#include "paths.h"
#include "support.h"

#include <fstream>

// Twenty programs that tests/parity/random_programs.py made, with the results that PyTorch gave; the file names the
// command that wrote it.

using namespace norma;
using namespace norma::test;
using json = nlohmann::json;

namespace {

/// Runs the kept programs with inputs on `device`, whatever the default device is.
void check_kept_programs(Device device) {
  const json kept = json::parse(std::ifstream(source_folder() / "tests/parity/random_programs.json"));
  REQUIRE(kept.at("programs").size() == 20);
  size_t compared_strides = 0;
  for (size_t number = 0; number < 20; ++number) {
    CAPTURE(number);
    const json& entry = kept.at("programs")[number];
    const json got = run_program(entry.at("program"), device);
    CAPTURE(got.value("error", "no error"));
    REQUIRE(got.contains("values"));
    size_t second_derivatives = 0;
    for (const auto& [name, values] : entry.at("values").items()) {
      CAPTURE(name);
      second_derivatives += name.starts_with("ddx") ? 1 : 0;
      const std::vector<double> expected = numbers_of(values);
      // No gradient is one of zeros.
      const std::vector<double> found =
          got["values"].contains(name) ? numbers_of(got["values"][name]) : std::vector<double>(expected.size(), 0.0);
      REQUIRE(found.size() == expected.size());
      double scale = 1;
      for (const double value : expected) {
        scale = std::max(scale, std::abs(value));
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(std::abs(found[i] - expected[i]) <= 1e-10 * scale);  // false for NaN; both compute in float64
      }
    }
    CHECK(second_derivatives > 0);
    for (const auto& [name, strides] : entry.at("strides").items()) {
      CAPTURE(name);
      ++compared_strides;
      CHECK(got["strides"][name] == strides);
    }
  }
  CHECK(compared_strides > 0);
}

}  // namespace

TEST_CASE("random programs: the kept ones give PyTorch's values, gradients and second derivatives") {
  check_kept_programs(default_device());
}

TEST_CASE("random programs: so they do on another device than the default one") {
  const DefaultDeviceGuard on_cpu(kCpu);
  check_kept_programs(kCudaEmulated);
}

TEST_CASE("random programs: what an op refuses is told, numbers that are not finite are texts") {
  json program = {
      {"inputs",
       {{{"sizes", {2}}, {"dtype", "float64"}, {"layout", "gapped"}, {"grad", true}, {"values", {-1.0, "inf"}}}}},
      {"steps", {{{"op", "log"}, {"args", {0}}}}},
      {"outputs", {1}},
      {"order", 1}};
  const json got = run_program(program);
  CHECK(got["values"]["y.1"] == json{"nan", "inf"});
  CHECK(got["values"]["dx.0"] == json{"nan", "nan"});
  CHECK(got["strides"]["y.1"] == json{1});
  program["steps"][0] = {{"op", "view"}, {"args", {0}}, {"sizes", {3}}};
  CHECK(run_program(program)["error"] == "view: sizes: expected 2 elements, as in [2], got [3]");
}
