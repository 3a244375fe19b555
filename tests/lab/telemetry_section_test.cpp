#include "lab/report/page.h"

#include "lab/telemetry/summary.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

Telemetry example() {
  Telemetry telemetry;
  telemetry.throughput = {.steps = 90, .min = 80, .median = 100, .max = 120};
  telemetry.step_time = {.samples = 3, .forward = 0.25, .backward = 0.65, .optimizer = 0.1};
  telemetry.step_time.forward_split = {.norm = 0.05, .convolution = 0.1, .product = 0.08, .rest = 0.02};
  telemetry.step_time.backward_split = {.norm = 0.15, .convolution = 0.4, .product = 0.02, .rest = 0.08};
  telemetry.saved = {{.layer = "conv1", .kind = LayerKind::convolution, .bytes = 3'000'000},
                     {.layer = "bn1", .kind = LayerKind::norm, .bytes = 1'000'000},
                     {.layer = "", .kind = LayerKind::other, .bytes = 500}};
  telemetry.ledger_known = true;
  LayerHealth conv{
      .layer = "conv1", .kind = LayerKind::convolution, .output = {.mean = 0.5, .deviation = 1, .largest = 7}};
  conv.gradient = {.mean = 0, .deviation = 0.25, .largest = 2};
  LayerHealth norm{.layer = "bn<1>", .kind = LayerKind::norm, .output = {.mean = 0, .deviation = 1, .largest = 3}};
  norm.dead_channels = 0.125;
  norm.gradient = {.mean = 0, .deviation = 0.01, .largest = 0.5};
  norm.gamma = {.min = 0.75, .max = 1.5, .mean = 1, .deviation = 0.1};
  norm.gap = {.mean = 0.0625, .deviation = 0.5};
  LayerHealth broken = conv;
  broken.output = {.mean = NAN, .deviation = NAN, .largest = NAN, .non_finite = 4};
  telemetry.health = {{.step = 100, .layers = {conv, norm}}, {.step = 200, .layers = {broken, norm}}};
  return telemetry;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

std::string html_of(const std::vector<NamedTelemetry>& runs) {
  std::string html;
  for (const Section& section : telemetry_sections(runs)) {
    html += to_html(section);
  }
  return html;
}

}  // namespace

TEST_CASE("telemetry: a summary names the layer and the step of each extreme") {
  const HealthSummary summary = summarize_health(example());
  CHECK(summary.non_finite == 4);
  REQUIRE(summary.largest_output);
  CHECK(summary.largest_output->layer == "conv1");
  CHECK(summary.largest_output->step == 100);  // in step 200 it is not a number
  CHECK(summary.largest_output->value == 7);
  CHECK(summary.smallest_gradient->layer == "bn<1>");
  CHECK(summary.smallest_gradient->value == 0.01);
  CHECK(summary.most_dead_channels->value == 0.125);
  CHECK(summary.least_gamma->value == 0.75);
  CHECK(summary.largest_gamma->value == 1.5);
  CHECK(summary.largest_gap->value == 0.0625);
  CHECK(saved_bytes(example(), LayerKind::norm) == 1'000'000);
  CHECK(saved_bytes(example(), LayerKind::linear) == 0);
  CHECK_FALSE(summarize_health({}).largest_output);
  CHECK_FALSE(activation_growth(example()));  // no input is known
  Telemetry vit = example();
  vit.health[0].layers[1].input_deviation = 1;  // of an earlier sample
  for (const double deviation : {0.5, 2.0, 4.0, 20.0}) {
    vit.health[1].layers.push_back(vit.health[1].layers[1]);
    vit.health[1].layers.back().input_deviation = deviation;
  }
  CHECK(activation_growth(vit).value_or(0) == doctest::Approx(20 * std::log10(5)));
}

TEST_CASE("telemetry: the page says where the time goes, which copies there are, and how the numbers look") {
  const Telemetry clean = example();
  Telemetry copying = example();
  for (int i = 0; i < 25; ++i) {
    copying.ledger.push_back({.op = "contiguous",
                              .layer = "layer" + std::to_string(i),
                              .pass = OpPass::backward,
                              .from = "channels_last",
                              .to = "contiguous",
                              .count = 2,
                              .bytes = 1'000'000});
  }
  const std::string page = html_of({{.group = "resnet18", .label = "batch", .telemetry = &clean},
                                    {.group = "resnet18", .label = "mine<", .telemetry = &copying}});
  // 200 of 1000 ms are the norm's.
  CHECK(page.find("<td>1000.0</td><td>250.0 (25 %)</td><td>650.0 (65 %)</td><td>100.0 (10 %)</td><td>200.0 (20 %)</td>"
                  "<td>500.0 (50 %)</td><td>100.0 (10 %)</td><td>100.0 (10 %)</td><td>80 to 120</td>"
                  "<td>4 MB</td><td>1 MB</td>") != std::string::npos);
  CHECK(page.find("1 of 2 networks make no copy of images") != std::string::npos);
  CHECK(page.find("<td>mine&lt;</td><td>layer3</td><td>contiguous</td><td>backward</td><td>channels_last</td>"
                  "<td>contiguous</td><td>2</td><td>1 MB</td>") != std::string::npos);
  CHECK(page.find("<td>5 more</td>") != std::string::npos);
  CHECK(page.find("<td>12.5 % (bn&lt;1&gt;, step 100)</td>") != std::string::npos);
  CHECK(count(page, "<details>") == 2);
  CHECK(page.find("bn<1>") == std::string::npos);
  CHECK(html_of({}).empty());
}

TEST_CASE("telemetry: the page of 500 runs stays small") {
  const Telemetry telemetry = example();
  const std::vector<NamedTelemetry> runs(500, {.group = "resnet18", .label = "batch", .telemetry = &telemetry});
  const std::string page = html_of(runs);
  CHECK(page.size() < 500'000);
  CHECK(count(page, "<details>") == 12);
}

TEST_CASE("telemetry: dynamics are charts of the parts that were asked for, and the cost of the sharpness is a table") {
  const auto with = [](const std::function<void(DynamicsSample&)>& fill) {
    Telemetry telemetry = example();
    for (HealthSample& sample : telemetry.health) {
      sample.dynamics = DynamicsSample{.lr = 0.1,
                                       .layers = {{.layer = "conv1", .kind = LayerKind::convolution},
                                                  {.layer = "fc", .kind = LayerKind::linear},
                                                  {.layer = "bn<1>", .kind = LayerKind::norm}},
                                       .sharpness = {}};
      fill(*sample.dynamics);
    }
    return telemetry;
  };
  const auto html = [](const Telemetry& telemetry) {
    return to_html(dynamics_section({{.group = "resnet18", .label = "mine<", .telemetry = &telemetry, .style = 3}}));
  };
  CHECK(html(example()).empty());
  const Telemetry none = with([](DynamicsSample&) {});
  CHECK(html(none).empty());
  const std::string asked = to_html(dynamics_section({{.group = "resnet18",
                                                       .label = "mine<",
                                                       .telemetry = &none,
                                                       .dynamics = {.weights = true, .saturation = true}}}));
  CHECK(asked.find("resnet18 with mine&lt;: no effective learning rates: no norm says that it takes the scale of its "
                   "input away (invariance()).</p>") != std::string::npos);
  CHECK(asked.find("resnet18 with mine&lt;: no saturation: no norm says that it is bounded (bend()).</p>") !=
        std::string::npos);
  const std::string gradients = html(with([](DynamicsSample& sample) {
    sample.layers[0].gradient_norm = 100;
    sample.layers[1].gradient_norm = 0.01;
    sample.layers[2].gradient_norm = 7;  // of a norm, which is not in the chart
  }));
  CHECK(count(gradients, "<figure>") == 2);
  CHECK(gradients.find("resnet18: gradient norm before the first update") != std::string::npos);
  CHECK(gradients.find("mine&lt; from 2 to -2.") != std::string::npos);
  CHECK(gradients.find("mine<") == std::string::npos);
  CHECK(gradients.find("What the sharpness cost") == std::string::npos);
  const std::string weights = html(with([](DynamicsSample& sample) {
    sample.layers[0].weight_norm = 2;
    sample.layers[0].effective_lr = 0.001;
    sample.layers[1].weight_norm = 50;  // its scale has an effect
  }));
  CHECK(count(weights, "<figure>") == 2);
  CHECK(weights.find("mine&lt; from 2 to 2.") != std::string::npos);
  CHECK(weights.find("mine&lt; from -3 to -3.") != std::string::npos);
  const std::string saturation = html(with([](DynamicsSample& sample) { sample.layers[2].saturation = 0.125; }));
  CHECK(count(saturation, "<figure>") == 2);
  CHECK(saturation.find("mine&lt; from 12.5 to 12.5.") != std::string::npos);
  const std::string sharpness = html(with([](DynamicsSample& sample) {
    sample.sharpness = Sharpness{.value = 31.25, .change = 0.0125, .products = 17, .seconds = 2.5};
  }));
  CHECK(count(sharpness, "<figure>") == 1);
  CHECK(sharpness.find("<td>mine&lt;</td><td>99</td><td>31.25</td><td>1.2 %</td><td>17</td><td>2.5</td>") !=
        std::string::npos);
  const std::string problem = html(with([](DynamicsSample& sample) {
    sample.layers[0].gradient_norm = 1;
    sample.sharpness = Sharpness{.problem = "mine: no <second> derivative"};
  }));
  CHECK(problem.find("<td>mine: no &lt;second&gt; derivative</td><td>–</td><td>0</td>") != std::string::npos);
}

TEST_CASE("telemetry: the heads of attention are charts of the networks that have them") {
  const Telemetry none = example();
  Telemetry vit = example();
  vit.health[0].attention = {{.layer = "blocks.0.attn", .head = 0, .largest_logit = 2, .entropy = 1.5},
                             {.layer = "blocks.0.attn", .head = 1, .largest_logit = 3, .entropy = 1.25},
                             {.layer = "blocks.1.attn", .head = 0, .largest_logit = 1, .entropy = 0.5},
                             {.layer = "blocks.1.attn", .head = 1, .largest_logit = 2.5, .entropy = 0.25}};
  vit.health[1].attention = vit.health[0].attention;
  vit.health[1].attention[3] = {.layer = "blocks.1.attn", .head = 1, .largest_logit = 40, .entropy = 0.125};
  CHECK(to_html(attention_section({{.group = "resnet18", .label = "batch", .telemetry = &none}})).empty());
  const std::string page = to_html(attention_section({{.group = "resnet18", .label = "batch", .telemetry = &none},
                                                      {.group = "vit_tiny", .label = "mine<", .telemetry = &vit}}));
  CHECK(count(page, "<figure>") == 3);
  CHECK(page.find("vit_tiny: largest logit of each head at the end") != std::string::npos);
  CHECK(page.find("mine&lt; from 2 to 40.") != std::string::npos);       // the first and the last head
  CHECK(page.find("mine&lt; from 1.5 to 0.125.") != std::string::npos);  // their entropies
  CHECK(page.find("mine&lt; from 3 to 40.") != std::string::npos);       // of all heads, over the run
  CHECK(page.find("resnet18") == std::string::npos);
}

TEST_CASE("telemetry: the charts of dynamics of 500 runs stay few") {
  Telemetry telemetry = example();
  for (HealthSample& sample : telemetry.health) {
    sample.dynamics = DynamicsSample{
        .lr = 0.1, .layers = {{.layer = "conv1", .kind = LayerKind::convolution, .gradient_norm = 1}}, .sharpness = {}};
  }
  std::vector<NamedTelemetry> runs;
  for (int i = 0; i < 500; ++i) {
    runs.push_back({.group = "resnet" + std::to_string(i / 10), .label = "batch", .telemetry = &telemetry});
  }
  const std::string page = to_html(dynamics_section(runs));
  CHECK(count(page, "<figure>") == 24);
  CHECK(count(page, "2 more are in results.json.") == 24);
  CHECK(page.size() < 200'000);
}

TEST_CASE("telemetry: the first finished seed stands for a row") {
  Comparison comparison;
  const Telemetry telemetry = example();
  for (const std::string norm : {"batch", "layer2d"}) {
    for (const uint64_t seed : {0, 1, 2}) {
      Cell cell;
      cell.model = "resnet18";
      cell.norm = norm;
      cell.seed = seed;
      cell.state = norm == "batch" && seed < 2 ? CellState::failed : CellState::finished;
      if (seed > 0) {
        cell.telemetry = telemetry;
        cell.telemetry->step_time.samples = static_cast<int64_t>(seed);
      }
      comparison.cells.push_back(std::move(cell));
    }
  }
  const std::vector<NamedTelemetry> runs = named_telemetry(comparison);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].label == "batch");
  CHECK(runs[0].telemetry->step_time.samples == 2);
  CHECK(runs[1].label == "layer2d");
  CHECK(runs[1].group == "resnet18");
  CHECK(runs[1].telemetry->step_time.samples == 1);
  comparison.cells.resize(2);
  CHECK(named_telemetry(comparison)[0].label == "batch (failed)");
}
