// Finds the floor of a network's step: runs its convolutions and matrix products alone, each in the fastest layout, and
// a copy. No step can take less. By hand: floor --model resnet50 -b 8

#include "lab/bench/floor.h"
#include "cli/spin_briefly.h"
#include "core/tf32.h"
#include "lab/bench/benchmark.h"
#include "lab/bench/spread.h"
#include "lab/bench/step.h"
#include "lab/report/table.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace {

namespace bench = norma::lab::bench;

/// The convolutions and products of one step.
std::vector<bench::ProductCall> calls_of(bench::Step& step) {
  const norma::OpProfile profile;
  step.run();
  return bench::product_calls(profile.records());
}

void print_floor(const bench::StepOptions& options, int rounds) {
  bench::Step step(options);
  const norma::Tf32Guard tf32(step.precision().tf32);
  const std::vector<bench::ProductCall> calls = calls_of(step);
  bench::ProductFloor floor;
  floor.run(calls);  // finds the fastest ways
  bench::Copy copy(bench::bytes_beyond_caches(floor.device()), floor.device());
  std::vector<std::vector<double>> runs;
  std::vector<double> totals;
  std::vector<double> copies;
  for (int round = 0; round < rounds; ++round) {
    runs.push_back(floor.run(calls));
    double total = 0;
    for (const double seconds : runs.back()) {
      total += seconds;
    }
    totals.push_back(total);
    copy.run();
    copies.push_back(copy.run());
  }
  const std::vector<double>& seconds = runs[bench::median_index(totals)];

  struct Line {
    int64_t calls = 0;
    double seconds = 0;
    double flops = 0;
  };
  std::map<bench::ProductCall, Line> lines;
  for (size_t i = 0; i < calls.size(); ++i) {
    Line& line = lines[calls[i]];
    ++line.calls;
    line.seconds += seconds[i];
    line.flops += bench::flops(calls[i]);
  }
  norma::lab::Table table{.heads = {"product", "fastest", "calls", "ms", "GFLOP/s"}, .words = 2};
  for (const auto& [call, line] : lines) {
    table.add(bench::to_string(call), floor.way(call), line.calls, fmt::format("{:.3f}", 1e3 * line.seconds),
              fmt::format("{:.1f}", 1e-9 * line.flops / line.seconds));
  }
  const double total = totals[bench::median_index(totals)];
  fmt::print("{}\n{} convolutions and matrix products: {:.3f} ms, {:.2f} img/s\ncopy: {:.1f} GB/s\n",
             norma::lab::to_text(table), calls.size(), 1e3 * total,
             static_cast<double>(options.recipe.batch_size) / total,
             1e-9 * copy.bytes() / copies[bench::median_index(copies)]);
}

}  // namespace

int main(int argc, char** argv) {
  norma::spin_briefly(argv);
  bench::StepOptions options{
      .recipe = {.model = "resnet50", .image_size = 224, .batch_size = 8, .channels_last = true}};
  bool infer = false;
  int rounds = 5;
  CLI::App app("Runs all convolutions and matrix products of one step of a network and nothing else.");
  app.add_option("--model", options.recipe.model)->capture_default_str();
  app.add_option("-b,--batch-size", options.recipe.batch_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--img-size", options.recipe.image_size)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--precision", options.recipe.precision)->capture_default_str();
  app.add_flag("--infer", infer, "a forward pass instead of a training step");
  app.add_option("--rounds", rounds, "runs, of which the median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  options.mode = infer ? bench::Mode::infer : bench::Mode::train;
  try {
    print_floor(options, rounds);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "floor: %s\n", e.what());
    return 1;
  }
}
