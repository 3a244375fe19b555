#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "files.h"
#include "json.h"
#include "lab/judge/audit.h"
#include "lab/judge/check_norm.h"
#include "lab/judge/norms.h"
#include "lab/report/table.h"
#include "ops/conv/conv.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

using namespace norma;
using namespace norma::lab::judge;

namespace {

/// A small problem of each kind of centring, float64, with weights that are not 1.
NormReferenceInputs small_inputs(const NormSpec& spec, const Sizes& sizes) {
  Sizes affine;
  for (const int64_t axis : spec.affine) {
    affine.push_back(sizes[axis]);
  }
  return {.spec = spec,
          .x = test::random_tensor(sizes, 1),
          .weight = mul(test::random_tensor(affine, 2), 0.25),  // outputs below 1: errors are absolute
          .bias = mul(test::random_tensor(affine, 3), 0.25),
          .dy = test::random_tensor(sizes, 4)};
}

const std::vector<std::pair<NormSpec, Sizes>> kSmall = {
    {{.reduce = {0, 2, 3}, .affine = {1}}, {3, 4, 2, 5}},
    {{.reduce = {1, 2, 3}, .affine = {1}, .groups = 2}, {3, 6, 2, 5}},
    {{.reduce = {1}, .affine = {1}, .centring = Centring::none}, {3, 7}},
    {{.reduce = {1, 2}, .affine = {1, 2}, .centring = Centring::deviation, .correction = 1}, {2, 3, 5}},
};

/// What layer norm itself makes of them.
Results results_of(const Inputs& inputs, Statistics statistics = Statistics::stable) {
  return apply(norm_called("layer"), inputs, statistics, Layout::contiguous);
}

Truth truth_of(const Inputs& inputs) {
  return {norm_called("layer"), inputs};
}

Inputs layer_inputs() {
  const NormReferenceInputs in = small_inputs({.reduce = {1}, .affine = {1}}, {5, 33});
  return {.x = in.x, .parameters = {{"weight", in.weight}, {"bias", in.bias}}, .dy = in.dy, .eps = in.spec.eps};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("audit: sets and weights are numbered in row-major order") {
  const NormSets index({2, 4, 3}, {.reduce = {1, 2}, .affine = {1}, .groups = 2});
  CHECK(index.sets() == 4);
  CHECK(index.weights() == 4);
  CHECK(index.rows() == 8);
  std::vector<size_t> elements;
  index.for_each(0, index.rows(), [&](size_t i, size_t set, size_t weight) {
    elements.push_back(i);
    CHECK(set == i / 6);  // two channels of three elements
    CHECK(weight == i / 3 % 4);
  });
  CHECK(elements.size() == 24);
  CHECK(elements.back() == 23);
}

TEST_CASE("audit: the definition of two close numbers") {
  // OneFlow #6149: ±0.8454271584, and the gradient of the sum is 0.
  const Truth truth =
      truth_of(make_inputs(case_called("two_values"), norm_called("layer"), DType::float32, /* quick= */ false));
  CHECK(std::abs(truth.reference().y(0, 0, 0) + 0.8454271584) <= 5e-11);
  CHECK(std::abs(truth.reference().y(1, 0, 1) - 0.8454271584) <= 5e-11);
  CHECK(std::abs(truth.reference().dx(0, 0, 0)) <= 1e-15);
}

TEST_CASE("audit: the definition's gradient is the derivative of its output") {
  for (const auto& [spec, sizes] : kSmall) {
    const NormReferenceInputs inputs = small_inputs(spec, sizes);
    const std::vector<double> dx = NormReference(inputs).all(&NormReference::dx);
    const std::vector<double> dy = inputs.dy.to_vector<double>();
    for (int64_t i = 0; i < inputs.x.numel(); ++i) {
      constexpr double kStep = 1e-5;
      double slope = 0;
      for (const double side : {1.0, -1.0}) {
        NormReferenceInputs moved = inputs;
        moved.x = copy_of(inputs.x);
        moved.x.data<double>()[i] += side * kStep;
        const std::vector<double> y = NormReference(moved).all(&NormReference::y);
        for (size_t j = 0; j < y.size(); ++j) {
          slope += side * dy[j] * y[j] / (2 * kStep);
        }
      }
      CHECK(std::abs(slope - dx[static_cast<size_t>(i)]) <= 1e-8);
    }
  }
}

TEST_CASE("audit: right results have the errors of rounding") {
  const Inputs inputs = layer_inputs();
  const Accuracy accuracy = truth_of(inputs).accuracy(results_of(inputs));
  for (const Errors& errors : {accuracy.output, accuracy.dx, accuracy.dweight, accuracy.dbias}) {
    CHECK(errors.worst <= 3e-15);
    CHECK(errors.mean <= errors.worst);
  }
  CHECK(accuracy.output.worst > 0);
  CHECK(accuracy.wrong_outputs == 0);
  CHECK(accuracy.wrong_gradients == 0);
}

TEST_CASE("audit: wrong results are found, and where") {
  const Inputs inputs = layer_inputs();
  const Truth truth = truth_of(inputs);
  const auto spoilt = [&](int which, double change) {
    Results results = results_of(inputs);
    Tensor& one = which == 0 ? results.y : which == 1 ? results.dx : results.gradients[static_cast<size_t>(which - 2)];
    one = copy_of(one);
    one.data<double>()[7] += change;
    return truth.accuracy(results);
  };
  const Accuracy output = spoilt(0, 1e-3);
  CHECK(std::abs(output.output.worst - 1e-3) <= 1e-12);
  CHECK(std::abs(output.output.mean - 1e-3 / 165) <= 1e-9);
  CHECK(output.dx.worst <= 3e-15);
  CHECK(spoilt(1, 1e-3).dx.worst > 1e-4);
  CHECK(spoilt(2, 1e-3).dweight.worst > 1e-4);
  CHECK(spoilt(3, 1e-3).dbias.worst > 1e-4);

  const Accuracy nan = spoilt(0, std::numeric_limits<double>::quiet_NaN());
  CHECK(nan.wrong_outputs == 1);
  CHECK(std::isinf(nan.output.worst));
  CHECK(spoilt(1, std::numeric_limits<double>::infinity()).wrong_gradients == 1);
  CHECK(worst_in_steps(output, DType::float64).at("output") == output.output.worst / 0x1p-52);
  CHECK(worst_in_steps(spoilt(1, std::numeric_limits<double>::infinity()), DType::float64).at("dx") ==
        std::numeric_limits<double>::infinity());
}

TEST_CASE("audit: a NaN that does not reach its set, or reaches another, is found") {
  Inputs inputs = layer_inputs();
  const Results clean = results_of(inputs);
  inputs.x = copy_of(inputs.x);
  inputs.x.data<double>()[40] = std::numeric_limits<double>::quiet_NaN();  // the second of five rows
  const Truth truth = truth_of(inputs);
  const Accuracy right = truth.accuracy(results_of(inputs));
  CHECK(right.wrong_outputs == 0);
  CHECK(right.wrong_gradients == 0);
  CHECK(right.output.worst <= 3e-15);  // the other rows
  Results lost = results_of(inputs);
  lost.y = clean.y;
  CHECK(truth.accuracy(lost).wrong_outputs == 33);
  Results spread = results_of(inputs);
  spread.y = full(clean.y.sizes(), std::numeric_limits<double>::quiet_NaN(), {.dtype = DType::float64});
  CHECK(truth.accuracy(spread).wrong_outputs == 4 * 33);
}

TEST_CASE("audit: every norm that is one normalize(), at the ends of what float32 holds") {
  for (const Norm& norm : all_norms()) {
    for (const char* name : {"constant_1e10", "underflow", "one_element", "huge_5e37", "nan", "inf"}) {
      const Case& c = case_called(name);
      if (!norm.spec || !why_not_taken(c, norm).empty()) {
        continue;
      }
      CAPTURE(norm.name);
      CAPTURE(c.name);
      const Inputs inputs = make_inputs(c, norm, DType::float32, /* quick= */ true);
      const Accuracy accuracy =
          Truth(norm, inputs).accuracy(apply(norm, inputs, Statistics::stable, Layout::contiguous));
      CHECK(accuracy.output.worst <= 2e-6);
      CHECK(accuracy.wrong_outputs == 0);
      CHECK(accuracy.wrong_gradients == 0);
    }
  }
}

TEST_CASE("audit: stable and compensated are below 2e-6 at offsets of 1e4 and 1e6, in every norm and layout") {
  for (const Norm& norm : all_norms()) {
    for (const char* name : {"offset_1e4", "offset_1e6"}) {
      if (!norm.spec) {
        continue;
      }
      const Inputs inputs = make_inputs(case_called(name), norm, DType::float32, /* quick= */ true);
      const Truth truth(norm, inputs);
      for (const Layout layout : layouts_of(inputs.x.rank())) {
        for (const Statistics statistics : {Statistics::stable, Statistics::compensated}) {
          CAPTURE(norm.name);
          CAPTURE(name);
          const Accuracy accuracy = truth.accuracy(apply(norm, inputs, statistics, layout));
          CHECK(accuracy.output.worst <= 2e-6);
          CHECK(accuracy.dx.worst <= (norm.name == "simple2d" ? 4e-3 : 2e-6));  // sums of dy * x: x is large
          CHECK(accuracy.dweight.worst <= 2e-6);
        }
      }
    }
  }
}

TEST_CASE("audit: norms agree with their formulas, output and every gradient, in both layouts") {
  for (const Norm& norm : all_norms()) {
    if (!norm.formula) {
      continue;
    }
    CAPTURE(norm.name);
    const Inputs inputs = make_inputs(case_called("offset_0"), norm, DType::float64, /* quick= */ true);
    const Truth truth(norm, inputs);
    for (const Layout layout : layouts_of(inputs.x.rank())) {
      const Results results = apply(norm, inputs, Statistics::stable, layout);
      const Accuracy accuracy = truth.accuracy(results);
      for (const Errors& errors : {accuracy.output, accuracy.dx, accuracy.dweight, accuracy.dbias}) {
        CHECK(errors.worst <= 5e-15);
      }
      CHECK(accuracy.wrong_outputs + accuracy.wrong_gradients == 0);
      Results spoilt = results;
      spoilt.dx = copy_of(results.dx);
      spoilt.dx.data<double>()[7] += 1e-3;
      CHECK(truth.accuracy(spoilt).dx.worst > 1e-4);
    }
  }
}

TEST_CASE("audit: NaN and infinity reach the gradients of parameters as they do by the formula") {
  for (const char* name : {"dyt", "derf", "seednorm", "frn", "batch_renorm"}) {
    for (const char* bad : {"nan", "inf"}) {
      CAPTURE(name);
      CAPTURE(bad);
      const Norm norm = norm_called(name);
      const Inputs inputs = make_inputs(case_called(bad), norm, DType::float32, /* quick= */ true);
      const Accuracy accuracy =
          Truth(norm, inputs).accuracy(apply(norm, inputs, Statistics::stable, Layout::contiguous));
      CHECK(accuracy.wrong_outputs == 0);
      CHECK(accuracy.wrong_gradients == 0);
    }
  }
}

TEST_CASE("audit: group norm has any number of groups, and a short name means the norm that is measured") {
  CHECK(norm_called("group").name == "group:4");
  CHECK(norm_called("evonorm_s0").name == "evonorm_s0:2");
  const Norm norm = norm_called("group:3");
  CHECK(norm.name == "group:3");
  const Inputs inputs = make_inputs(case_called("offset_0"), norm, DType::float64, /* quick= */ true);
  const Accuracy accuracy = Truth(norm, inputs).accuracy(apply(norm, inputs, Statistics::stable, Layout::contiguous));
  CHECK(accuracy.output.worst <= 3e-15);
  CHECK(!find_norm("group").has_value());  // 32 groups or fewer, by the channels
  CHECK(!find_norm("group:3[eps=1]").has_value());
}

TEST_CASE("audit: zero-centred weights, and groups of channels for a root mean square") {
  for (const std::string name : {"layer2d[offset=true]", "rms2d[offset=true]", "rms2d[groups=5]",
                                 "rms2d[groups=5,offset=true]", "seednorm[offset=true]"}) {
    CAPTURE(name);
    const Norm norm = norm_called(name);
    CHECK(norm.name == name);
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      const Inputs inputs = make_inputs(case_called("offset_0"), norm, DType::float64, /* quick= */ true);
      const Accuracy accuracy = Truth(norm, inputs).accuracy(apply(norm, inputs, Statistics::stable, layout));
      CHECK(accuracy.output.worst <= 1e-14);
      CHECK(accuracy.dx.worst <= 1e-13);
      CHECK(accuracy.dweight.worst <= 1e-13);
      CHECK(accuracy.wrong_outputs + accuracy.wrong_gradients == 0);
    }
    // Without the 1, or with one set for all channels, the definition is another.
    Norm other = norm_called(name.substr(0, name.find('[')));
    other.sizes = norm.sizes;
    const Inputs inputs = make_inputs(case_called("offset_0"), norm, DType::float64, /* quick= */ true);
    CHECK(Truth(other, inputs).accuracy(apply(norm, inputs, Statistics::stable, Layout::contiguous)).output.worst >
          0.01);
  }
  CHECK(!find_norm("rms2d[eps=1]").has_value());
}

TEST_CASE("audit and check-norm say the same of the same norm on the same input") {
  for (const char* name : {"layer2d", "rms2d", "group:4", "batch"}) {
    CAPTURE(name);
    const Audit audit = run_audit({.norms = {name}, .statistics = {"stable"}, .dtypes = {"float32"}, .quick = true});
    const std::vector<norma::lab::HardInput> checked = norma::lab::check_norm(name, {.quick = true}).hard_inputs;
    REQUIRE(audit.measurements.size() == checked.size());
    for (size_t i = 0; i < checked.size(); ++i) {
      CHECK(audit.measurements[i].norm == name);
      CHECK(audit.measurements[i].case_name == checked[i].name);
      CHECK(worst_in_steps(audit.measurements[i].accuracy, DType::float32) == checked[i].steps);
    }
  }
}

TEST_CASE("audit: the inputs of the published cases have the published mean and deviation") {
  struct Published {
    std::string name;
    int64_t numel;
    double low, high, mean, mean_error, deviation, deviation_error;
  };
  // The errors are four standard errors.
  const Published kPublished[] = {{"rand_100", 100, 1e4, 1e4 + 1, 1e4 + 0.5, 0.12, 0.2887, 0.06},
                                  {"randn_1024x32768", 16 * 32768, 99.9, 100.1, 100, 6e-5, 0.01, 4e-5}};
  for (const Published& published : kPublished) {
    CAPTURE(published.name);
    const Inputs in = make_inputs(case_called(published.name), norm_called("layer"), DType::float32, /* quick= */ true);
    CHECK(in.x.numel() == published.numel);
    const std::vector<double> values = in.x.to_vector<double>();
    bool within = true;
    double mean = 0;
    double var = 0;
    for (const double value : values) {
      within = within && value >= published.low && value <= published.high;
      mean += value / static_cast<double>(values.size());
    }
    for (const double value : values) {
      var += (value - mean) * (value - mean) / static_cast<double>(values.size());
    }
    CHECK(within);
    CHECK(std::abs(mean - published.mean) <= published.mean_error);
    CHECK(std::abs(std::sqrt(var) - published.deviation) <= published.deviation_error);
  }
}

TEST_CASE("audit: E[x²] - E[x]² fails where it must") {
  for (const char* name : {"offset_1e4", "rand_100", "randn_1024x32768"}) {
    const Inputs inputs = make_inputs(case_called(name), norm_called("layer"), DType::float32, /* quick= */ true);
    CAPTURE(name);
    const Accuracy accuracy = truth_of(inputs).accuracy(results_of(inputs, Statistics::sum_of_squares));
    CHECK(accuracy.output.worst > 0.1);
  }
}

TEST_CASE("audit: what a dtype cannot hold") {
  CHECK(why_not_held(case_called("offset_1e6"), DType::float16) == "float16 ends at 65504");
  CHECK(why_not_held(case_called("offset_1e4"), DType::bfloat16) ==
        "at 10000 the steps of bfloat16 are 64, and the deviation is 1");
  CHECK(why_not_held(case_called("underflow"), DType::float16) == "the smallest float16 is 6.0e-08");
  CHECK(why_not_held(case_called("randn_1024x32768"), DType::float64) == "published in float32");
  CHECK(why_not_held(case_called("huge_5e37"), DType::bfloat16).empty());
  CHECK(why_not_held(case_called("offset_1e6"), DType::float32).empty());
  CHECK(why_not_taken(case_called("one_element"), norm_called("batch")) == "one element in a set is an error");
  CHECK(why_not_taken(case_called("rand_100"), norm_called("group")) == "published for layer norm");
}

TEST_CASE("audit: names that are unknown or come twice") {
  CHECK_THROWS_WITH_AS(check_options({.norms = {"bath"}}), "audit: norms: unknown norm 'bath'; did you mean 'batch'?",
                       Error);
  CHECK_THROWS_WITH_AS(check_options({.norms = {"batch", "rms2d", "batch"}}),
                       "audit: norms: expected each once, got batch twice", Error);
  CHECK_THROWS_WITH_AS(check_options({.statistics = {"stabel"}}),
                       "audit: statistics: unknown statistics 'stabel'; did you mean 'stable'?", Error);
  CHECK_THROWS_WITH_AS(check_options({.dtypes = {"float23"}}),
                       "audit: dtypes: unknown dtype 'float23'; did you mean 'float32'?", Error);
  CHECK_THROWS_WITH_AS(check_options({.cases = {"offset_1e5"}}),
                       "audit: cases: unknown case 'offset_1e5'; did you mean 'offset_1e2'?", Error);
  CHECK_THROWS_WITH_AS(check_options({.norms = {"sync_batch"}}),
                       "audit: norms: sync_batch has no definition in plain loops; check-norm --norms sync_batch "
                       "compares it with its own float64",
                       Error);
}

TEST_CASE("audit: the report holds every measurement, timing and omission") {
  const Audit audit = run_audit({.norms = {"layer", "rms2d"},
                                 .statistics = {"two_pass", "sum_of_squares"},
                                 .dtypes = {"float32", "float16"},
                                 .cases = {"offset_0", "huge_1e19", "two_values"},
                                 .quick = true,
                                 .command = "norma audit"});
  CHECK(audit.complete);
  // float32: layer with both statistics on three cases, rms on two; float16 the same without huge_1e19
  REQUIRE(audit.measurements.size() == 2 * 3 + 2 + 2 * 2 + 1);
  CHECK(audit.measurements.front().norm == "layer");
  CHECK(audit.measurements.front().statistics == Statistics::two_pass);
  REQUIRE(audit.costs.size() == 2 * 3 * 3);  // dtypes, walks, and stable beside the two
  for (const Cost& cost : audit.costs) {
    CHECK(cost.seconds > 0);
    CHECK((cost.statistics != Statistics::stable || cost.relative == 1));
  }
  REQUIRE(audit.omissions.size() == 1);
  CHECK(audit.omissions[0].what == "float16 huge_1e19");

  const test::TemporaryFolder folder;
  write_report(audit, train::HeldFolder("audit", folder.path()));
  const std::vector<std::string> csv = lines_of(test::read_file(folder / "results.csv"));
  REQUIRE(csv.size() == 14);
  CHECK(csv[0].starts_with("norm,statistics,dtype,case,layout,sizes,output_worst,output_mean,dx_worst,"));
  CHECK(csv[1].starts_with("layer,two_pass,float32,offset_0,contiguous,13x4400,"));
  for (const std::string& line : csv) {
    CHECK(std::count(line.begin(), line.end(), ',') == 15);
  }
  CHECK(lines_of(test::read_file(folder / "costs.csv")).size() == 19);

  const auto json = test::parse_json(test::read_file(folder / "results.json"));
  CHECK(json["format"] == "norma audit 1");
  CHECK(json["command"] == "norma audit");
  CHECK(json["environment"]["cpu"] == audit.environment.cpu);
  CHECK(json["measurements"].size() == 13);
  CHECK(json["measurements"][0]["output"]["worst"] == audit.measurements[0].accuracy.output.worst);
  CHECK(json["costs"].size() == 18);
  CHECK(json["omissions"][0]["reason"] == "float16 ends at 65504");

  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Audit bad = audit;
  bad.measurements[0].accuracy.output = {.worst = kInfinity, .mean = -kInfinity};
  bad.measurements[0].accuracy.dx = {.worst = std::nan(""), .mean = 2};
  const auto first = test::parse_json(to_json(bad))["measurements"][0];
  CHECK(first["output"]["worst"] == "inf");
  CHECK(first["output"]["mean"] == "-inf");
  CHECK(first["dx"]["worst"] == "nan");
  CHECK(first["dx"]["mean"] == 2);

  const std::string table = test::read_file(folder / "table.txt");
  CHECK(table == to_table(audit));
  const std::vector<std::string> lines = lines_of(table);
  const auto head = std::find_if(lines.begin(), lines.end(),
                                 [](const std::string& line) { return line.starts_with("norm   statistics"); });
  REQUIRE(head != lines.end());
  for (int i = 1; i <= 6; ++i) {  // layer with two statistics and rms, in two dtypes
    CHECK(norma::columns_of(head[i]) == norma::columns_of(*head));
  }
  CHECK(table.find("two_values  float32  two_pass") != std::string::npos);
}

TEST_CASE("text table: numbers on the right, remarks anywhere, no blanks at the end") {
  CHECK(norma::lab::to_text(
            {.heads = {"name", "é", "n"}, .rows = {{{"a", "1", "22"}}, {{"b"}, "a long remark"}, {{"c", "", ""}}}}) ==
        "name  é   n\n"
        "a     1  22\n"
        "b     a long remark\n"
        "c\n");
}

TEST_CASE("audit: convolutions: every implementation rounds as float32 does, and that of the process stays") {
  const Conv2dImplementationGuard guard("eigen", kCpu);
  const std::vector<ConvolutionErrors> layers = measure_convolutions(true, [](const std::string&) {});
  CHECK(conv2d_implementation(kCpu) == "eigen");
  REQUIRE(layers.size() == 4 * convolution_implementations().size());
  for (size_t i = 0; i < layers.size(); i += 4) {
    for (size_t quantity = 0; quantity < 3; ++quantity) {
      const auto error = [&](size_t implementation) { return layers[i + implementation].errors[quantity]; };
      CAPTURE(layers[i].what);
      CAPTURE(layer_quantities()[quantity]);
      for (const size_t implementation : {0, 1, 2, 3}) {
        CHECK(error(implementation) > 1e-8);
        CHECK(error(implementation) < 3e-6);
      }
      CHECK(error(1) != error(0));
      CHECK(error(2) != error(1));
      // What is chosen is one of them.
      CHECK((error(3) == error(0) || error(3) == error(1) || error(3) == error(2)));
    }
  }
}
