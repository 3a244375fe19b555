#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "files.h"
#include "models/registry.h"
#include "ops/conv/cuda/plan_cudnn.h"
#include "ops/loss/loss.h"
#include "ops/shape/copy.h"
#include "paths.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

using namespace norma;
using namespace norma::kernels;

// cuDNN needs no GPU to say whether it takes a convolution: the properties of one will do. Without a driver it cannot
// say so of the engines that it compiles itself, so these plans are of the others.

namespace {

const cuda::PlanTarget& h200() {
  static const cuda::PlanTarget target = cuda::PlanTarget::from_properties(
      test::read_file(test::source_folder() / "tests/models/h200_device_properties.json"));
  return target;
}

/// The convolutions of one training step, each shape and pass once.
std::set<Conv2dCall> calls_of(const std::string& model, MemoryFormat format) {
  Generator random(1);
  const auto net = models::create_model(model, {.num_classes = 10});
  if (format == MemoryFormat::channels_last) {
    net->to(format);
  }
  Tensor images = copy_of(randn({1, 3, 224, 224}, {}, random), format);
  images.set_requires_grad(true);  // the first convolution has an input gradient, too
  const OpProfile profile;
  backward(cross_entropy((*net)(images), zeros({1}, {.dtype = DType::int64})));
  std::set<Conv2dCall> calls;
  for (const OpRecord& record : profile.records()) {
    if (const auto* call = std::any_cast<Conv2dCall>(&record.work.call)) {
      calls.insert(*call);
    }
  }
  return calls;
}

}  // namespace

TEST_CASE("conv2d_cudnn: every convolution of the networks has a plan, in every dtype and format") {
  int plans = 0;
  for (const char* model : {"resnet50", "convnext_tiny"}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      const std::set<Conv2dCall> calls = calls_of(model, format);
      REQUIRE(calls.size() >= 10);
      for (Conv2dCall call : calls) {
        for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
          for (const bool bias : {false, true}) {
            if (bias && call.pass != Conv2dPass::forward) {
              continue;
            }
            call.conv.dtype = dtype;
            call.conv.n = 64;
            CAPTURE(std::string(to_string(dtype)));
            CAPTURE(fmt::format("{} x {} x {} -> {}, {}x{}, groups {}, pass {}", call.conv.c, call.conv.h, call.conv.w,
                                call.conv.o, call.conv.kh, call.conv.kw, call.conv.groups,
                                static_cast<int>(call.pass)));
            const cuda::GraphPlan plan = std::move(plan_convolution({.call = call, .bias = bias}, {}, h200()).front());
            ++plans;
            // Tensor cores take channels_last as it lies. The first layers are padded to eight channels, and depthwise
            // convolutions have sums of their own.
            const bool plain = call.conv.groups == 1 && call.conv.c % 8 == 0;
            if (plain && is_half(dtype) && call.conv.channels_last) {
              CHECK(plan.workspace_bytes <= int64_t{16} << 20);
            }
          }
        }
      }
    }
  }
  CHECK(plans > 400);
}

TEST_CASE("conv2d_cudnn: odd sizes, groups, dilation, unlike formats, and float64") {
  const Conv2dCase odd{.n = 3,
                       .c = 6,
                       .h = 13,
                       .w = 9,
                       .o = 9,
                       .kh = 3,
                       .kw = 2,
                       .oh = 7,
                       .ow = 7,
                       .stride_h = 2,
                       .padding_h = 1,
                       .dilation_w = 2,
                       .groups = 3};
  for (Conv2dCase conv : {odd, Conv2dCase{.n = 1,
                               .c = 5,
                               .h = 7,
                               .w = 7,
                               .o = 5,
                               .kh = 7,
                               .kw = 7,
                               .oh = 7,
                               .ow = 7,
                               .padding_h = 3,
                               .padding_w = 3,
                               .groups = 5}}) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16}) {
      for (const bool channels_last : {false, true}) {
        for (const bool weight_channels_last : {false, true}) {
          for (const Conv2dPass pass : {Conv2dPass::forward, Conv2dPass::input_gradient, Conv2dPass::weight_gradient}) {
            conv.dtype = dtype;
            conv.channels_last = channels_last;
            conv.weight_channels_last = weight_channels_last;
            CHECK_NOTHROW(plan_convolution({.call = {.conv = conv, .pass = pass}}, {}, h200()));
          }
        }
      }
    }
  }
}

TEST_CASE("conv2d_cudnn: what no engine may do is an error that says why") {
  const Conv2dCase conv{.n = 64,
                        .c = 64,
                        .h = 56,
                        .w = 56,
                        .o = 64,
                        .kh = 3,
                        .kw = 3,
                        .oh = 56,
                        .ow = 56,
                        .padding_h = 1,
                        .padding_w = 1};
  const auto plan = [&](Conv2dCase wanted, DType dtype, bool channels_last, const cuda::PlanRules& rules) {
    wanted.dtype = dtype;
    wanted.channels_last = wanted.weight_channels_last = channels_last;
    return std::move(plan_convolution({.call = {.conv = wanted}}, rules, h200()).front());
  };
  // Strict float32 in channels_last is transposed, TF32 is not.
  CHECK(plan(conv, DType::float32, true, {}).workspace_bytes > 1 << 20);
  CHECK(plan(conv, DType::float32, true, {.tf32 = true}).workspace_bytes < 1 << 20);
  CHECK(plan(conv, DType::float32, true, {.workspace_bytes = 1 << 20}).workspace_bytes <= 1 << 20);  // slower
  try {
    plan(conv, DType::bfloat16, true, {.workspace_bytes = -1});  // none wants less than nothing
    FAIL("expected an Error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.starts_with("conv2d: cuDNN "));
    CHECK(text.find("no deterministic way to compute this in bfloat16 with -1 bytes of workspace") !=
          std::string::npos);
  }
}

TEST_CASE("conv2d_cudnn: the ways of one convolution have names of their own, by which each is found again") {
  const Conv2dCase conv{.dtype = DType::bfloat16,
                        .channels_last = true,
                        .weight_channels_last = true,
                        .n = 64,
                        .c = 64,
                        .h = 56,
                        .w = 56,
                        .o = 64,
                        .kh = 3,
                        .kw = 3,
                        .oh = 56,
                        .ow = 56,
                        .padding_h = 1,
                        .padding_w = 1};
  for (const Conv2dPass pass : {Conv2dPass::forward, Conv2dPass::input_gradient, Conv2dPass::weight_gradient}) {
    const ConvPlanCase wanted{.call = {.conv = conv, .pass = pass}};
    const std::vector<cuda::GraphPlan> plans = plan_convolution(wanted, {}, h200(), {.most = 8});
    REQUIRE(plans.size() > 1);
    CHECK(plans.size() <= 8);
    std::set<std::string> names;
    for (const cuda::GraphPlan& plan : plans) {
      CHECK_MESSAGE(names.insert(plan.name).second, "twice: ", plan.name);
      const std::vector<cuda::GraphPlan> again = plan_convolution(wanted, {}, h200(), {.most = 2, .name = plan.name});
      REQUIRE(again.size() == 1);
      CHECK(again.front().name == plan.name);
      CHECK(again.front().workspace_bytes == plan.workspace_bytes);
    }
    CHECK(plan_convolution(wanted, {}, h200()).front().name == plans.front().name);
    CHECK_THROWS_AS(plan_convolution(wanted, {}, h200(), {.name = "no such way"}), Error);
  }
}

TEST_CASE("conv2d_cudnn: the three channels of images go to tensor cores without padding of ours") {
  // cuDNN pads them to eight channels in its workspace. To pad them once for both passes would save one of two such
  // copies, 70 MB, of a step that moves some 20 GB.
  for (const bool resnet : {true, false}) {
    const int64_t patch = resnet ? 7 : 4;
    const int64_t stride = resnet ? 2 : 4;
    const int64_t side = resnet ? 112 : 56;
    const Conv2dCase conv{.dtype = DType::bfloat16,
                          .channels_last = true,
                          .weight_channels_last = true,
                          .n = 64,
                          .c = 3,
                          .h = 224,
                          .w = 224,
                          .o = resnet ? 64 : 96,
                          .kh = patch,
                          .kw = patch,
                          .oh = side,
                          .ow = side,
                          .stride_h = stride,
                          .stride_w = stride,
                          .padding_h = resnet ? 3 : 0,
                          .padding_w = resnet ? 3 : 0};
    for (const Conv2dPass pass : {Conv2dPass::forward, Conv2dPass::weight_gradient}) {
      const auto plans = plan_convolution({.call = {.conv = conv, .pass = pass}}, {}, h200(), {.most = 8});
      const auto padded = std::ranges::find_if(plans, &cuda::GraphPlan::tensor_cores);
      REQUIRE(padded != plans.end());
      CHECK(padded->workspace_bytes >= conv.n * 8 * conv.h * conv.w * 2);
    }
  }
}
