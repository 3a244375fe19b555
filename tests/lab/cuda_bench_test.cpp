#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "cuda_devices.h"
#include "lab/bench/benchmark.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "parallel/process_group.h"
#include "support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

// What bench measures where a step is a graph: on the virtual GPU.

using namespace norma;
using namespace norma::lab::bench;
using test::devices_with_graphs;
using test::error_of;
using test::max_difference;

namespace {

/// A convolution, a norm, a classifier.
StepOptions small_step(train::GraphMode mode) {
  static const bool known = [] {
    models::register_model("bench_net", {.make = [](const models::ModelOptions& options) {
                             manual_seed(options.seed);
                             auto net = std::make_shared<nn::Sequential>();
                             net->push_back(std::make_shared<nn::Conv2d>(options.in_channels, 8, Pair{3, 3}));
                             net->push_back(nn::make_norm(options.norm, 8));
                             net->push_back(std::make_shared<nn::ReLU>());
                             net->push_back(std::make_shared<nn::Flatten>());
                             net->push_back(std::make_shared<nn::Linear>(8 * 6 * 6, options.num_classes));
                             return net;
                           }});
    return true;
  }();
  REQUIRE(known);
  return {.recipe = {.model = "bench_net", .norm = "batch", .image_size = 8, .batch_size = 2},
          .num_classes = 3,
          .cuda_graph = mode};
}

BenchOptions small_bench(train::GraphMode mode) {
  return {.models = {"bench_net"},
          .norms = {"batch", "group:2"},
          .recipe = small_step(mode).recipe,
          .num_classes = 3,
          .warm_steps = 0,
          .steps = 2,
          .cuda_graph = mode};
}

}  // namespace

TEST_CASE("cuda graph: bench: steps by a graph and ordinary ones change the weights alike") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Step ordinary(small_step(train::GraphMode::off));
    Step launched(small_step(train::GraphMode::on));
    for (int64_t i = 0; i < train::StepGraph::kWarmUp + 3; ++i) {
      CHECK(ordinary.run().whole == 0);
    }
    for (int i = 0; i < 3; ++i) {
      const StepParts parts = launched.run();  // the first one after the steps of warming up
      CHECK(parts.whole > 0);
      CHECK(parts.total() == parts.whole);
    }
    CHECK(ordinary.graph_size() == 0);
    CHECK(launched.graph_size() > 0);
    const Tensors expected = ordinary.model().parameters();
    const Tensors found = launched.model().parameters();
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(max_difference(found[i], expected[i]) == 0);
    }
  }
}

TEST_CASE("cuda graph: bench: ordinary steps follow where the graph was released, and its size stays known") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    for (const Mode mode : {Mode::train, Mode::infer}) {
      StepOptions options = small_step(train::GraphMode::automatic);
      options.mode = mode;
      Step step(options);
      CHECK(step.run().whole > 0);
      const int64_t size = step.graph_size();
      CHECK(size > 0);
      step.release_graph();
      const StepParts parts = step.run();
      CHECK(parts.whole == 0);
      CHECK(parts.forward > 0);
      CHECK(step.graph_size() == size);
    }
  }
}

TEST_CASE("cuda graph: bench: rows say that they are graphs, and those that must compare by parts are ordinary steps") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    std::vector<std::string> lines;
    BenchOptions options = small_bench(train::GraphMode::automatic);
    options.log = [&](const std::string& line) { lines.push_back(line); };
    for (const BenchRow& row : run_benchmark(options).rows) {
      REQUIRE(row.infer);
      REQUIRE(row.train);
      CHECK(row.infer->graph_size > 0);
      CHECK(row.infer->gmacs > 0);
      CHECK(row.train->graph_size > row.infer->graph_size);
      CHECK(row.train->parts.forward == 0);
    }
    CHECK(std::ranges::count_if(lines, [](const std::string& line) {
            return line.starts_with("cuda-graph: a step is one graph of ");
          }) == 4);
    options.modes = {Mode::train};
    options.alternate = true;
    for (const BenchRow& row : run_benchmark(options).rows) {
      CHECK(row.train->graph_size == 0);
      CHECK(row.train->parts.forward > 0);
    }
    options.alternate = false;
    options.norms = {"batch"};
    options.group = parallel::make_single_group();
    CHECK(run_benchmark(options).rows[0].train->graph_size == 0);
  }
}

TEST_CASE("cuda graph: bench: why steps are ordinary ones is said, with and without steps of warming up") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    for (const int64_t warm_steps : {0, 1}) {
      std::vector<std::string> lines;
      BenchOptions options = small_bench(train::GraphMode::automatic);
      options.norms = {"batch"};
      options.modes = {Mode::train};
      options.warm_steps = warm_steps;
      options.steps = 1;
      options.recipe.opt = "muon";
      options.log = [&](const std::string& line) { lines.push_back(line); };
      CHECK(run_benchmark(options).rows[0].train->graph_size == 0);
      CHECK(std::ranges::count(lines, "cuda-graph: off: the numbers of muon go to its kernels by value") == 1);
    }
  }
}

TEST_CASE("bench: options that no graph can have are refused beside one") {
  BenchOptions options = small_bench(train::GraphMode::on);
  options.alternate = true;
  CHECK(error_of([&] { check_options(options); }) ==
        "bench: alternate: expected no --cuda-graph on beside it, since each row would keep the memory of a graph");
  options.alternate = false;
  options.detail = true;
  CHECK(error_of([&] { check_options(options); }) ==
        "bench: detail: expected no --cuda-graph on beside it, since nobody can look into a graph");
  options.detail = false;
  options.norms = {"batch"};
  options.modes = {Mode::train};
  options.procs = {1, 2};
  CHECK(error_of([&] { check_options(options); }) ==
        "bench: procs: expected no --cuda-graph on beside it, since gradients travel between processes");
}
