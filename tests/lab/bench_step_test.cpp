#include "lab/bench/step.h"

#include "core/op_profile.h"
#include "error_text.h"
#include "lab/bench/benchmark.h"
#include "lab/bench/floor.h"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

using namespace norma;
using namespace norma::lab::bench;
using test::error_of;

namespace {

/// How many convolutions are of this pass.
int64_t count_calls(const std::vector<ProductCall>& calls, kernels::Conv2dPass pass) {
  return std::count_if(calls.begin(), calls.end(), [&](const ProductCall& call) {
    const auto* conv = std::get_if<kernels::Conv2dCall>(&call);
    return conv != nullptr && conv->pass == pass;
  });
}

}  // namespace

TEST_CASE("bench: every precision trains and infers, and ops compute in it") {
  for (const std::string& precision : train::precision_names()) {
    CAPTURE(precision);
    for (const Mode mode : {Mode::infer, Mode::train}) {
      Step step({.recipe = {.model = "resnet18", .image_size = 32, .batch_size = 2, .precision = precision},
                 .num_classes = 3,
                 .mode = mode,
                 .fold = mode == Mode::infer});
      CHECK(step.folded() == (mode == Mode::infer ? 20 : 0));
      const OpProfile profile;
      CHECK(step.run().total() > 0);
      // two images and the stem's weights come in, two maps of 64 channels go out
      const double elements = 2 * 3 * 32 * 32 + 64 * 3 * 7 * 7 + 2 * 64 * 16 * 16;
      const auto stem = std::find_if(profile.records().begin(), profile.records().end(),
                                     [](const OpRecord& record) { return record.work.flops > 0; });
      REQUIRE(stem != profile.records().end());
      const bool half = precision.find("float16") != std::string::npos;
      CHECK(stem->work.bytes == elements * (precision == "float64" ? 8 : half ? 2 : 4));
    }
  }
}

TEST_CASE("bench: options of the update are honoured") {
  Step step({.recipe = {.model = "resnet18", .image_size = 32, .batch_size = 2, .opt = "sgd", .clip_grad = 1e-3},
             .num_classes = 3});
  const OpProfile profile;
  step.run();
  const auto count = [&](std::string_view op) {
    return std::count_if(profile.records().begin(), profile.records().end(),
                         [&](const OpRecord& record) { return record.work.op == op; });
  };
  CHECK(count("sgd") > 0);
  CHECK(count("adamw") == 0);
  CHECK(count("clip_grad_norm_") > 0);
}

TEST_CASE("bench: steps become a graph where the device has some, and say why not where one is demanded") {
  const DefaultDeviceGuard on_cpu(kCpu);
  StepOptions options{.recipe = {.model = "resnet18", .image_size = 32, .batch_size = 2},
                      .num_classes = 3,
                      .cuda_graph = train::GraphMode::automatic};
  Step step(options);
  CHECK(step.run().whole == 0);
  CHECK(step.graph_size() == 0);
  options.cuda_graph = train::GraphMode::on;
  CHECK(error_of([&] { Step{options}; }) ==
        "bench: cuda-graph: expected steps that become a graph, but cpu has no graphs");
}

TEST_CASE("bench: detail adds up to the step, and the floor has the convolutions of ResNet-50") {
  Step step(
      {.recipe = {.model = "resnet50", .image_size = 32, .batch_size = 2, .channels_last = true}, .num_classes = 10});
  step.run();
  std::vector<ProductCall> calls;
  {
    const OpProfile profile;
    step.run();
    calls = product_calls(profile.records());
  }
  CHECK(count_calls(calls, kernels::Conv2dPass::forward) == 53);
  CHECK(count_calls(calls, kernels::Conv2dPass::input_gradient) == 52);  // the image needs none
  CHECK(count_calls(calls, kernels::Conv2dPass::weight_gradient) == 53);
  CHECK(std::count_if(calls.begin(), calls.end(), [](const ProductCall& call) { return call.index() == 1; }) == 3);

  ProductFloor floor;
  const Detail detail = measure_detail(step, floor);
  double seconds = 0;
  double floors = 0;
  int64_t forward_convolutions = 0;
  for (const OpLine& line : detail.lines) {
    CAPTURE(line.op);
    CHECK(line.calls > 0);
    CHECK(line.seconds >= 0);
    CHECK(line.floor >= 0);
    seconds += line.seconds;
    floors += line.floor;
    forward_convolutions += line.op.starts_with("conv2d ") && line.pass == OpPass::forward ? line.calls : 0;
  }
  CHECK(forward_convolutions == 53);
  CHECK(seconds <= detail.step());
  CHECK(seconds >= 0.5 * detail.step());  // ops of a network this small leave room for the tape
  CHECK(std::abs(seconds + detail.outside() - detail.step()) < 1e-9);
  CHECK(std::abs(floors - detail.product_floor - detail.moving_floor) < 1e-9);
  CHECK(std::abs(detail.product_floor + detail.moving_floor + detail.rest() - detail.step()) < 1e-9);
  CHECK(detail.copy_rate > 1e8);
  CHECK(detail.parts.forward > 0);
  CHECK(detail.parts.backward > 0);
  CHECK(detail.parts.optimizer > 0);

  const std::string table = to_table(detail);
  for (const char* text :
       {"conv2d 3x3 ", "conv2d 7x7/2 ", "conv2d_weight_gradient 1x1 ", "backward", "optimizer", "adamw", "outside ops",
        "= convolutions and products alone", "+ bytes of the others at the copy rate", "+ rest"}) {
    CHECK_MESSAGE(table.find(text) != std::string::npos, text);
  }
}

TEST_CASE("bench: the way that is fastest for a product") {
  const kernels::Conv2dCase conv{
      .channels_last = true, .n = 1, .c = 16, .h = 8, .w = 8, .o = 32, .kh = 1, .kw = 1, .oh = 8, .ow = 8};
  const kernels::MatmulCase product{
      .m = 64, .n = 32, .k = 16, .a_row = 16, .a_column = 1, .b_row = 1, .b_column = 16, .c_row = 32};
  ProductFloor floor;
  std::vector<ProductCall> calls = {product};
  for (const auto pass :
       {kernels::Conv2dPass::forward, kernels::Conv2dPass::input_gradient, kernels::Conv2dPass::weight_gradient}) {
    calls.emplace_back(kernels::Conv2dCall{conv, pass});
  }
  kernels::Conv2dCase depthwise = conv;
  depthwise.o = depthwise.groups = 16;
  depthwise.kh = depthwise.kw = 3;
  depthwise.padding_h = depthwise.padding_w = 1;
  calls.emplace_back(kernels::Conv2dCall{depthwise, kernels::Conv2dPass::weight_gradient});
  kernels::Conv2dCase wide = conv;
  wide.dtype = DType::float64;
  calls.emplace_back(kernels::Conv2dCall{wide, kernels::Conv2dPass::forward});
  const std::vector<double> seconds = floor.run(calls);
  REQUIRE(seconds.size() == calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(to_string(calls[i]));
    CHECK(seconds[i] > 0);
    CHECK(!floor.way(calls[i]).empty());
  }
  CHECK(floor.way(calls.back()) == "eigen");
  CHECK(flops(calls[0]) == 2.0 * 64 * 32 * 16);
  CHECK(flops(calls[1]) == flops(calls[0]));
  CHECK(to_string(calls[0]) == "matmul 64x16x32");
  CHECK(to_string(calls[1]) == "conv2d 1x1 16→32 8x8 forward");
  CHECK(to_string(calls[4]) == "conv2d 3x3 in 16 groups 16→16 8x8 weight gradient");
}

TEST_CASE("bench: detail and floor on a device whose memory only kernels may touch") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  Step step({.recipe = {.model = "resnet18", .image_size = 32, .batch_size = 2}, .num_classes = 3});
  ProductFloor floor;
  CHECK(floor.device() == kCudaEmulated);
  const Detail detail = measure_detail(step, floor);
  double seconds = 0;
  for (const OpLine& line : detail.lines) {
    CAPTURE(line.op);
    CHECK(line.seconds >= 0);
    CHECK(line.floor >= 0);
    seconds += line.seconds;
  }
  CHECK(seconds > 0);
  CHECK(seconds <= detail.step());
  CHECK(detail.product_floor > 0);
  CHECK(detail.product_floor < detail.step());
  CHECK(detail.copy_rate > 1e8);
}

TEST_CASE("bench: memory with a cache of its own is copied in blocks beyond that cache") {
  CHECK(in_host_memory(kCpu));
  CHECK(in_host_memory(kCudaEmulated));
  CHECK(bytes_beyond_caches(kCpu) == int64_t{128} << 20);
  CHECK(bytes_beyond_caches(kCudaEmulated) == bytes_beyond_caches(kCpu));
}

TEST_CASE("bench: a copy") {
  Copy copy(1 << 16);
  CHECK(copy.bytes() == 2 << 16);
  CHECK(copy.run() > 0);
}
