#include "lab/bench/benchmark.h"

#include "core/allocator.h"
#include "error_text.h"
#include "json.h"
#include "session/environment.h"

#include <doctest/doctest.h>
#include <cmath>
#include <sstream>

using namespace norma;
using namespace norma::lab::bench;
using test::error_of;

namespace {

BenchOptions small_options() {
  return {.models = {"resnet18"},
          .recipe = {.image_size = 32, .batch_size = 2, .channels_last = true},
          .num_classes = 10,
          .warm_steps = 1,
          .steps = 2};
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (const char c : line) {
    quoted = c == '"' ? !quoted : quoted;
    if (c == ',' && !quoted) {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
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

TEST_CASE("bench: spread of times") {
  const Spread spread = spread_of({3, 1, 2, 10});
  CHECK(spread.min == 1);
  CHECK(spread.median == 2.5);
  CHECK(spread.mean == 4);
  CHECK(spread.max == 10);
  CHECK(spread.count == 4);
  CHECK(spread_of({}).count == 0);
  CHECK(median_index({3, 1, 2, 10}) == 2);
  CHECK(median_index({5}) == 0);
}

TEST_CASE("bench: batch sizes that are tried when memory does not suffice") {
  std::vector<int64_t> sizes;
  for (int64_t size = 64; size > 0; size = smaller_batch(size)) {
    sizes.push_back(size);
  }
  CHECK(sizes == std::vector<int64_t>{64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1});
  CHECK(smaller_batch(100) == 96);
  CHECK(smaller_batch(1) == 0);
}

TEST_CASE("bench: models by name and by pattern, each once") {
  CHECK(expand_models({"resnet50", "resnet1?*", "resnet18"}) ==
        std::vector<std::string>{"resnet50", "resnet18", "resnet101", "resnet152"});
  CHECK(expand_models({"all"}).size() > 20);
  CHECK(error_of([] { expand_models({"resnet5"}); }) == "bench: unknown model 'resnet5'; did you mean 'resnet50'?");
  CHECK(error_of([] { expand_models({"vgg*"}); }) ==
        "bench: model: expected a pattern that matches a model, got 'vgg*'");
}

TEST_CASE("bench: options that make no sense") {
  const auto complaint = [](auto&& change) {
    BenchOptions options = small_options();
    change(options);
    return error_of([&] { check_options(options); });
  };
  CHECK(complaint([](BenchOptions& o) { o.steps = 0; }) ==
        "bench: num-bench-iter: expected a whole number from 1 to 1000000, got 0");
  CHECK(complaint([](BenchOptions& o) { o.warm_steps = -1; }) ==
        "bench: num-warm-iter: expected a whole number from 0 to 1000000, got -1");
  CHECK(complaint([](BenchOptions& o) { o.num_classes = 0; }) ==
        "bench: num-classes: expected a whole number from 1 to 1000000, got 0");
  CHECK(complaint([](BenchOptions& o) { o.recipe.precision = "float31"; }) ==
        "precision: unknown precision 'float31'; did you mean 'float32'?");
  CHECK(complaint([](BenchOptions& o) {
          o.norms = {"batch", "batch"};
        }) == "bench: norm: expected each once, got batch twice");
  CHECK(complaint([](BenchOptions& o) {
          o.modes = {Mode::train};
          o.fold = true;
        }) == "bench: fold: expected --bench infer or both, since training needs the norms");
  CHECK(complaint([](BenchOptions& o) { o.alternate = o.retry = true; }) ==
        "bench: alternate: expected no --retry beside it, since rows that take turns have one batch size");
  CHECK(complaint([](BenchOptions& o) { o.recipe.batch_size = 0; }).find("batch-size") != std::string::npos);
  CHECK(complaint([](BenchOptions& o) { o.recipe.clip_mode = "agc"; }) ==
        "train: clip-mode: expected a clip-grad with 'agc', got none");
}

TEST_CASE("bench: norms over all processes are not measured as norms of one") {
  const auto complaint = [](auto&& change) {
    BenchOptions options = small_options();
    options.modes = {Mode::train};
    options.procs = {1, 2};
    change(options);
    return error_of([&] { check_options(options); });
  };
  CHECK(complaint([](BenchOptions& o) { o.norms = {"batch"}; }) == "no error");
  const std::string refused =
      "bench: procs: expected no sync-bn and no norm sync_batch beside it, whose messages a measured step does not "
      "have";
  CHECK(complaint([](BenchOptions& o) { o.recipe.sync_bn = true; }) == refused);
  CHECK(complaint([](BenchOptions& o) { o.norms = {"sync_batch[momentum=0.01]"}; }) == refused);
  CHECK(complaint([](BenchOptions& o) { o.recipe.norm_policy = "\"layer4.*\" = \"sync_batch\"\n"; }) == refused);
}

TEST_CASE("bench: a row has throughput, spread and memory of both modes") {
  BenchOptions options = small_options();
  std::vector<std::string> log;
  options.log = [&](const std::string& line) { log.push_back(line); };
  const Benchmark benchmark = run_benchmark(options);
  CHECK(benchmark.complete);
  REQUIRE(benchmark.rows.size() == 1);
  const BenchRow& row = benchmark.rows[0];
  CHECK(row.norm == "batch");
  CHECK(row.error.empty());
  for (const Mode mode : options.modes) {
    REQUIRE(row.measured(mode));
    const Measured& m = *row.measured(mode);
    CHECK(m.step.count == 2);
    CHECK(m.step.min > 0);
    CHECK(m.step.min <= m.step.median);
    CHECK(m.step.median <= m.step.max);
    CHECK(m.batch_size == 2);
    CHECK(m.retries == 0);
    CHECK(m.samples_per_second() == 2 / m.step.median);
    CHECK(m.peak_allocated > 4 * row.parameters);  // the weights are made meanwhile
  }
  CHECK(row.train->peak_allocated > row.infer->peak_allocated);
  CHECK(row.train->parts.backward > 0);
  CHECK(row.infer->parts.backward == 0);
  // ResNet-18 without its stem's pooling would have more; timm says 1.82 GMACs at 224², a 49th of which is 0.037.
  CHECK(std::abs(row.infer->gmacs - 0.0372) < 0.0005);

  CHECK(log[0].starts_with("Benchmarking in float32 precision. NHWC layout. "));
  CHECK(log[1] == "Model resnet18 created, param count: 11181642");
  CHECK(log[2] ==
        "Running inference benchmark on resnet18 with norm batch for 2 steps w/ input size (3, 32, 32) and batch size "
        "2.");
  CHECK(log[3].starts_with("Infer [1/2]. "));
  CHECK(log[4].find(" samples/sec. ") != std::string::npos);
  CHECK(log[5].starts_with("Infer benchmark of resnet18 with norm batch done. "));

  const auto json = nlohmann::ordered_json::parse(to_json(benchmark));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    keys.push_back(key);
  }
  CHECK(keys == std::vector<std::string>{"model",
                                         "infer_samples_per_sec",
                                         "infer_step_time",
                                         "infer_batch_size",
                                         "infer_img_size",
                                         "infer_gmacs",
                                         "infer_macts",
                                         "infer_step_time_min",
                                         "infer_step_time_mean",
                                         "infer_step_time_max",
                                         "infer_peak_memory",
                                         "infer_peak_rss",
                                         "infer_peak_allocated",
                                         "train_samples_per_sec",
                                         "train_step_time",
                                         "train_batch_size",
                                         "train_img_size",
                                         "train_step_time_min",
                                         "train_step_time_mean",
                                         "train_step_time_max",
                                         "train_peak_memory",
                                         "train_peak_rss",
                                         "train_peak_allocated",
                                         "param_count",
                                         "norm",
                                         "precision",
                                         "format",
                                         "threads",
                                         "device",
                                         "conv_layer",
                                         "opt",
                                         "fold"});
  CHECK(json["param_count"] == 11.18);
  CHECK(json["format"] == "channels_last");
  CHECK(json["conv_layer"] == "conv");
  CHECK(json["device"] == train::device_text());
}

TEST_CASE("bench: other convolutions than the usual are named") {
  BenchOptions options = small_options();
  options.modes = {Mode::infer};
  options.recipe.conv_layer = "std_conv";
  options.warm_steps = 0;
  options.steps = 1;
  std::string log;
  options.log = [&](const std::string& line) { log += line + '\n'; };
  const Benchmark benchmark = run_benchmark(options);
  CHECK(test::parse_json(to_json(benchmark))["conv_layer"] == "std_conv");
  CHECK(to_table(benchmark).find("\nresnet18 (std_conv)  batch ") != std::string::npos);
  CHECK_MESSAGE(log.find("Infer benchmark of resnet18 (std_conv) with norm batch done. ") != std::string::npos, log);
}

TEST_CASE("bench: an injected lack of memory makes the batch smaller, and every row says so") {
  BenchOptions options = small_options();
  options.modes = {Mode::infer};
  options.recipe.batch_size = 6;
  options.warm_steps = 0;
  options.steps = 1;
  std::vector<int64_t> tried;
  const auto needs_room_for_three = [&](int64_t batch_size) {
    tried.push_back(batch_size);
    if (batch_size > 3) {
      throw OutOfMemory("allocator: none");
    }
  };
  options.before_build = needs_room_for_three;
  CHECK(error_of([&] { run_benchmark(options); }) ==
        "bench: batch-size: 6 images do not fit into memory (allocator: none); --batch-size 3 would fit");
  CHECK(tried == std::vector<int64_t>{6, 4, 3});  // a fixed batch by default; the others are tried for the text
  tried.clear();
  options.before_build = [&](int64_t) { throw std::bad_alloc(); };
  CHECK(error_of([&] { run_benchmark(options); }) ==
        "bench: batch-size: 6 images do not fit into memory (the system has none left); a single one did not fit "
        "either");
  options.before_build = needs_room_for_three;

  tried.clear();
  options.retry = true;
  std::string log;
  options.log = [&](const std::string& line) { log += line + "\n"; };
  const Benchmark benchmark = run_benchmark(options);
  CHECK(tried == std::vector<int64_t>{6, 4, 3});
  CHECK(benchmark.rows[0].infer->batch_size == 3);
  CHECK(benchmark.rows[0].infer->retries == 2);
  CHECK(log.find("out of memory with batch size 6; trying 4\nout of memory with batch size 4; trying 3\n") !=
        std::string::npos);
  const auto json = test::parse_json(to_json(benchmark));
  CHECK(json["infer_batch_size"] == 3);
  CHECK(json["infer_requested_batch_size"] == 6);
  CHECK(json["infer_retries"] == 2);
  CHECK(to_csv(benchmark).find("infer_requested_batch_size,infer_retries") != std::string::npos);

  options.before_build = [](int64_t) { throw OutOfMemory("none at all"); };
  CHECK(error_of([&] { run_benchmark(options); }) == "none at all");
  options.before_build = [](int64_t) { throw std::bad_alloc(); };
  CHECK_THROWS_AS(run_benchmark(options), std::bad_alloc);
}

TEST_CASE("bench: other errors are not retried, and one row's error leaves the others") {
  BenchOptions options = small_options();
  options.modes = {Mode::infer};
  options.warm_steps = 0;
  options.steps = 1;
  options.retry = true;
  options.norms = {"batch", "group:7", "layer2d"};  // 7 groups fit no layer
  const Benchmark benchmark = run_benchmark(options);
  REQUIRE(benchmark.rows.size() == 3);
  CHECK(benchmark.rows[0].error.empty());
  CHECK(!benchmark.rows[1].infer);
  CHECK(benchmark.rows[1].error.find("7") != std::string::npos);
  CHECK(benchmark.rows[2].infer);

  // Rows with different keys: every line has as many fields as there are columns.
  const std::vector<std::string> lines = lines_of(to_csv(benchmark));
  REQUIRE(lines.size() == 4);
  const std::vector<std::string> columns = fields(lines[0]);
  CHECK(columns.front() == "model");
  CHECK(columns.back() == "error");
  for (const std::string& line : lines) {
    CHECK(fields(line).size() == columns.size());
  }
  const auto json = test::parse_json(to_json(benchmark));
  REQUIRE(json.size() == 3);
  CHECK(json[2]["norm"] == "group:7");  // the fastest first
  CHECK(json[2].contains("error"));
  CHECK(!json[2].contains("infer_step_time"));
  const std::string table = to_table(benchmark);
  CHECK(table.find("tax %") != std::string::npos);
  CHECK(table.find("resnet18  batch    channels_last  infer") != std::string::npos);
}

TEST_CASE("bench: both memory formats") {
  BenchOptions options = small_options();
  options.modes = {Mode::infer};
  options.steps = 1;
  options.both_formats = true;
  options.alternate = true;
  std::string log;
  options.log = [&](const std::string& line) { log += line + "\n"; };
  const Benchmark benchmark = run_benchmark(options);
  REQUIRE(benchmark.rows.size() == 2);
  CHECK(!benchmark.rows[0].channels_last);
  CHECK(benchmark.rows[1].channels_last);
  CHECK(log.find("Benchmarking in float32 precision. NCHW and NHWC layout.") == 0);
  CHECK(log.find("with norm batch in NCHW for 1 steps") != std::string::npos);
  CHECK(log.find("with norm batch in NHWC done.") != std::string::npos);
  const std::string csv = to_csv(benchmark);
  CHECK(csv.find(",contiguous,") != std::string::npos);
  CHECK(csv.find(",channels_last,") != std::string::npos);
}

TEST_CASE("bench: norms that take turns") {
  BenchOptions options = small_options();
  options.modes = {Mode::train};
  options.norms = {"batch", "layer2d"};
  options.alternate = true;
  const Benchmark benchmark = run_benchmark(options);
  REQUIRE(benchmark.rows.size() == 2);
  CHECK(benchmark.rows[0].train->step.count == 2);
  CHECK(benchmark.rows[1].train->step.count == 2);
  CHECK(to_json(benchmark).find("peak") == std::string::npos);  // nobody knows whose memory it was
}

TEST_CASE("bench: folded batch norms, float64, NCHW") {
  BenchOptions options = small_options();
  options.modes = {Mode::infer};
  options.steps = 1;
  options.fold = true;
  options.recipe.precision = "float64";
  options.recipe.channels_last = false;
  std::string log;
  options.log = [&](const std::string& line) { log += line + "\n"; };
  const auto json = test::parse_json(to_json(run_benchmark(options)));
  CHECK(log.find("Benchmarking in float64 precision. NCHW layout.") == 0);
  CHECK(log.find("20 batch norms are folded into the convolutions before them\n") != std::string::npos);
  CHECK(json["fold"] == true);
  CHECK(json["precision"] == "float64");
  CHECK(json["format"] == "contiguous");
}
