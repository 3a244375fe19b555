#include "lab/judge/check_norm.h"

#include "base/error.h"
#include "built_in_norm_names.h"
#include "core/factory.h"
#include "core/op.h"
#include "nn/module.h"
#include "nn/norm/factory.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

using namespace norma;
using namespace norma::lab;

namespace {

/// layer2d with a fault.
class Faulty : public nn::Module {
 public:
  using Function = Tensor (*)(const Tensor& x, const Tensor& weight);
  Faulty(int64_t channels, Function f) : weight_(register_parameter("weight", ones({channels}))), f_(f) {}

  Tensor forward(const Tensor& x) override { return f_(x, weight_); }
  [[nodiscard]] std::string name() const override { return "Faulty"; }

 private:
  Tensor weight_;
  Function f_;
};

NormCheckReport report_of(Faulty::Function f) {
  nn::register_norm("faulty", [f](int64_t channels) { return std::make_shared<Faulty>(channels, f); });
  return check_norm("faulty", {.quick = true});
}

const NormCheck& find(const NormCheckReport& report, const std::string& name) {
  for (const NormCheck& one : report.checks) {
    if (one.name == name) {
      return one;
    }
  }
  FAIL("no check " << name);
  return report.checks.front();
}

/// The names of the checks that failed, with blanks between.
std::string failed(const NormCheckReport& report) {
  std::string names;
  for (const NormCheck& one : report.checks) {
    if (one.outcome == CheckOutcome::failed) {
      names += (names.empty() ? "" : ", ") + one.name;
    }
  }
  return names;
}

Tensor layer_norm(const Tensor& x, const Tensor& weight) {
  return normalize(x, {.reduce = {1}, .affine = {1}}, weight);
}

}  // namespace

TEST_CASE("check_norm: nothing is wrong with our own norms" * doctest::test_suite("again")) {
  for (const std::string& name : test::built_in_norm_names()) {
    CAPTURE(name);
    const NormCheckReport report = check_norm(name, {.quick = true});
    // The gradient of batch renormalization takes its correction for a constant.
    CHECK_MESSAGE(failed(report) == (name == "batch_renorm" ? "gradient of x, second derivatives" : ""),
                  to_text(report));
    CHECK(report.checks.size() == 12);
  }
}

TEST_CASE("check_norm: networks and speed") {
  const NormCheckReport report = check_norm("layer2d");
  CHECK_MESSAGE(report.passed(), to_text(report));
  CHECK(find(report, "networks").text == "two steps of resnet18, convnext_atto and vit_tiny");
  CHECK(find(report, "speed").text.find("channels_last backward ") != std::string::npos);
}

TEST_CASE("check_norm: a norm without a fault, made of ops") {
  CHECK(failed(report_of(layer_norm)) == "");
}

TEST_CASE("check_norm: a wrong gradient") {
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    return Op("faulty").record({x}, layer_norm(x.detach(), weight.detach()), {},
                               [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy * 1.5}; });
  });
  CHECK(failed(report).find("gradient of x, gradients of parameters") != std::string::npos);
  CHECK(find(report, "gradients of parameters").text == "weight: expected a gradient, got none");
}

TEST_CASE("check_norm: a gradient of a parameter that is a little off") {
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    const Tensor off = Op("off").record(
        {weight}, weight.detach(), {}, [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy * 1.01}; });
    return layer_norm(x, off);
  });
  CHECK(failed(report) == "gradients of parameters");
  CHECK(find(report, "gradients of parameters").text.find(" elements are wrong; the furthest, element ") !=
        std::string::npos);
}

TEST_CASE("check_norm: a hidden copy, in forward and in backward") {
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    return to(layer_norm(contiguous(x), weight), x.suggest_memory_format());
  });
  CHECK(failed(report) == "copies");
  CHECK(find(report, "copies").text ==
        "channels_last: 2 copies of the whole input in the forward pass; channels_last: 2 copies of the whole input in "
        "the backward pass");
}

TEST_CASE("check_norm: another memory format") {
  const NormCheckReport report =
      report_of([](const Tensor& x, const Tensor& weight) { return contiguous(layer_norm(x, weight)); });
  CHECK(failed(report) == "memory formats, copies");
  CHECK(find(report, "memory formats").text.find("channels_last: expected output of this memory format") == 0);
}

TEST_CASE("check_norm: a gradient that is NaN for constant input, or summed in 16 bits") {
  const NormCheckReport root = report_of([](const Tensor& x, const Tensor& weight) {
    const Tensor centred = x - mean(x, {1}, {.keepdim = true});
    const Tensor deviation = sqrt(mean(centred * centred, {1}, {.keepdim = true})) + 1e-5;
    return to(centred / deviation * view(weight, {x.size(1), 1, 1}), x.dtype());
  });
  CHECK(find(root, "exactness").text == "gradient of x: expected finite numbers, got nan for input [4, 16, 9, 7]");
  const NormCheckReport coarse = report_of([](const Tensor& x, const Tensor& weight) {
    const Tensor y = layer_norm(x, weight);
    return Op("coarse").record({y}, y.detach(), {}, [](const Tensor& dy, const BackwardContext&) -> Tensors {
      return {dy.dtype() == DType::bfloat16 ? dy * 1.2 : dy};
    });
  });
  CHECK(failed(coarse) == "dtypes");
  CHECK(find(coarse, "dtypes").text.find("bfloat16, input [3, 16, 5, 4]: expected a gradient of x within ") == 0);
}

TEST_CASE("check_norm: a norm of one image that goes by its strides") {
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    return x.size(0) == 1 && x.stride(0) != x.numel() ? layer_norm(x, weight) * 2 : layer_norm(x, weight);
  });
  CHECK(failed(report) == "memory formats");
  CHECK(find(report, "memory formats").text ==
        "half of the channels of one image: expected the results of a copy of them");
}

TEST_CASE("check_norm: as many channels as the groups want") {
  const NormCheckReport report = check_norm("group:32", {.quick = true});
  CHECK_MESSAGE(report.passed(), to_text(report));
}

TEST_CASE("check_norm: sums of squares cancel") {
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    return normalize(x, {.reduce = {1}, .affine = {1}, .statistics = Statistics::sum_of_squares}, weight);
  });
  CHECK(failed(report) == "exactness");
}

TEST_CASE("check_norm: what throws, has other sizes, another dtype or NaN fails, and the rest is checked") {
  const NormCheckReport throws = report_of([](const Tensor&, const Tensor&) -> Tensor { fail("faulty", "no"); });
  CHECK(throws.checks.size() == 12);
  CHECK(find(throws, "sizes").text == "faulty: no");
  const auto first_text = [](Faulty::Function f) { return find(report_of(f), "sizes").text; };
  CHECK(first_text([](const Tensor&, const Tensor& weight) { return weight; }) ==
        "output: expected sizes [2, 8, 5, 3], got [8]");
  CHECK(first_text([](const Tensor& x, const Tensor&) { return to(x, DType::float64); }) ==
        "output: expected dtype float32, got float64");
  CHECK(first_text([](const Tensor& x, const Tensor&) { return x * std::numeric_limits<double>::quiet_NaN(); }) ==
        "output: expected finite numbers, got nan for input [2, 8, 5, 3]");
  CHECK(first_text([](const Tensor&, const Tensor&) { return Tensor(); }) == "output: expected a tensor, got none");
  CHECK(first_text([](const Tensor& x, const Tensor&) { return x.detach(); }) ==
        "output: expected one that a gradient goes back from, got one off the tape");
}

TEST_CASE("check_norm: a norm that cannot be made fails each check, whatever it throws") {
  nn::register_norm("faulty", [](int64_t) -> std::shared_ptr<nn::Module> { throw std::runtime_error("no memory"); });
  const NormCheckReport report = check_norm("faulty", {.quick = true, .like = "layer2d"});
  CHECK(report.checks.size() == 13);
  for (const NormCheck& one : report.checks) {
    CHECK(one.outcome == CheckOutcome::failed);
    CHECK(one.text == "no memory");
  }
}

TEST_CASE("check_norm: what a norm keeps and does not save") {
  static double kept = 0;
  kept = 0;
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    kept += 1e-3;
    return layer_norm(x, weight) + kept;
  });
  CHECK(failed(report).find("repeatability") != std::string::npos);
  CHECK(failed(report).find("saving") != std::string::npos);
}

TEST_CASE("check_norm: running statistics of something else than the batch's channels") {
  /// layer2d that keeps the mean of all elements and the mean square, whatever they are for.
  class Keeper : public nn::Module {
   public:
    explicit Keeper(int64_t channels)
        : mean_(register_buffer("running_mean", zeros({channels}))),
          var_(register_buffer("running_var", ones({channels}))) {}
    Tensor forward(const Tensor& x) override {
      if (is_training()) {
        const NoGradGuard guard;
        add_(mul_(mean_, 0.9), norma::to(mean(x), mean_.dtype()) * 0.1);
        add_(mul_(var_, 0.9), norma::to(mean(x * x, {0, 2, 3}), var_.dtype()) * 0.1);
      }
      return layer_norm_2d(x);
    }
    [[nodiscard]] std::string name() const override { return "Keeper"; }

   private:
    Tensor mean_;
    Tensor var_;
  };
  nn::register_norm("keeper", [](int64_t channels) { return std::make_shared<Keeper>(channels); });
  const NormCheckReport report = check_norm("keeper", {.quick = true});
  CHECK(failed(report) == "running statistics");
  CHECK(find(report, "running statistics").text.find("running_mean: channel 1: expected ") == 0);
  CHECK(find(check_norm("batch[momentum=0.9]", {.quick = true}), "running statistics").outcome == CheckOutcome::passed);
  CHECK(find(check_norm("batch[biased_running_var=true]", {.quick = true}), "running statistics").outcome ==
        CheckOutcome::noted);
}

namespace {

TEST_CASE("check_norm: images that depend on each other in evaluation are a fault, unless the norm wants it") {
  class ByBatch : public nn::Module {
   public:
    Tensor forward(const Tensor& x) override { return normalize(x, {.reduce = {0, 2, 3}}); }
    [[nodiscard]] std::string name() const override { return "ByBatch"; }
  };
  nn::register_norm("by_batch", {.make = [](const nn::NormChoice&, int64_t) { return std::make_shared<ByBatch>(); },
                                 .options = {"track_running_stats"}});
  CHECK(find(check_norm("by_batch", {.quick = true}), "evaluation").outcome == CheckOutcome::failed);
  CHECK(find(check_norm("by_batch[track_running_stats=false]", {.quick = true}), "evaluation").outcome ==
        CheckOutcome::noted);
}

/// Batch norm that divides by the root of the mean square: of the batch in training, of a buffer in evaluation.
class RunningRms : public nn::Module {
 public:
  RunningRms(int64_t channels, double momentum, bool goes_by_it)
      : square_(register_buffer("running_ms", ones({channels}))), momentum_(momentum), goes_by_it_(goes_by_it) {}
  Tensor forward(const Tensor& x) override {
    const Tensor of_batch = mean(x * x, {0, 2, 3});
    if (is_training()) {
      const NoGradGuard guard;
      add_(mul_(square_, 1 - momentum_), norma::to(of_batch, square_.dtype()) * momentum_);
    }
    const Tensor square = is_training() ? of_batch : goes_by_it_ ? square_ : square_ * 0 + 3;
    return norma::to(x / sqrt(view(square, {x.size(1), 1, 1}) + 1e-5), x.dtype());
  }
  [[nodiscard]] std::string name() const override { return "RunningRms"; }

 private:
  Tensor square_;
  double momentum_;
  bool goes_by_it_;
};

NormCheck running_rms(double momentum, bool goes_by_it) {
  nn::register_norm("running_rms", [momentum, goes_by_it](int64_t channels) {
    return std::make_shared<RunningRms>(channels, momentum, goes_by_it);
  });
  return find(check_norm("running_rms", {.quick = true}), "running statistics");
}

}  // namespace

TEST_CASE("check_norm: evaluation by a buffer of any name, which has to move, and towards the batch") {
  const NormCheck right = running_rms(0.1, true);
  CHECK(right.outcome == CheckOutcome::passed);
  CHECK(right.text == "running_ms: evaluation comes within 0 % of training");
  const NormCheck stands = running_rms(0, true);
  CHECK(stands.outcome == CheckOutcome::failed);
  CHECK_MESSAGE(stands.text.ends_with(" % of the largest number away, and no buffer moves"), stands.text);
  const NormCheck ignored = running_rms(0.1, false);
  CHECK(ignored.outcome == CheckOutcome::failed);
  CHECK_MESSAGE(ignored.text.ends_with("(training moves running_ms)"), ignored.text);
}

TEST_CASE("check_norm: as many channels as make sets of sixteen numbers") {
  // RMS norm over the channels of each of eight groups, at each pixel.
  const NormCheckReport report = report_of([](const Tensor& x, const Tensor& weight) {
    return reshape(normalize(reshape(x, {x.size(0) * 8, x.size(1) / 8, x.size(2), x.size(3)}),
                             {.reduce = {1}, .centring = Centring::none}),
                   x.sizes()) *
           view(norma::to(weight, x.dtype()), {x.size(1), 1, 1});
  });
  CHECK(find(report, "sizes").text == "128 channels: sets of at least 16");
  CHECK_MESSAGE(find(report, "exactness").outcome == CheckOutcome::passed, find(report, "exactness").text);
  CHECK(find(check_norm("group:8", {.quick = true}), "sizes").text == "8 channels: sets of at least 16");
  CHECK(find(check_norm("dyt", {.quick = true}), "sizes").text == "8 channels: sets of 1");
}

TEST_CASE("check_norm: like another norm, with a weight that is an offset from 1") {
  class OnePlus : public nn::Module {
   public:
    explicit OnePlus(int64_t channels) : weight_(register_parameter("weight", zeros({channels}))) {}
    Tensor forward(const Tensor& x) override { return layer_norm(x, weight_ + 1.0); }
    [[nodiscard]] std::string name() const override { return "OnePlus"; }

   private:
    Tensor weight_;
  };
  nn::register_norm("one_plus", [](int64_t channels) { return std::make_shared<OnePlus>(channels); });
  for (const auto& [norm, other] : {std::pair("one_plus", "layer2d[eps=1e-5]"), {"layer2d[eps=1e-5]", "one_plus"}}) {
    const NormCheck check = check_norm(norm, {.quick = true, .like = other}).checks.front();
    CHECK_MESSAGE(check.outcome == CheckOutcome::passed, check.text);
    CHECK(check.text.ends_with("; weight begins at 0 in one and at 1 in the other: taken for 1 + it"));
  }
}

TEST_CASE("check_norm: like another norm") {
  const auto like = [](const std::string& norm, const std::string& other) {
    const NormCheckReport report = check_norm(norm, {.quick = true, .like = other});
    CHECK(report.checks.size() == 13);
    CHECK(report.checks.front().name == "like " + other);
    return report.checks.front();
  };
  for (const auto& [norm, other] : {std::pair("group:8", "group/1"),
                                    {"group:1", "group:1[statistics=welford]"},
                                    {"instance[affine=true]", "group/1"},
                                    {"batch", "ghost_batch"}}) {
    const NormCheck check = like(norm, other);
    CHECK_MESSAGE(check.outcome == CheckOutcome::passed, norm, ": ", check.text);
    CHECK_MESSAGE(check.text.find("output and gradients within ") == 0, check.text);
  }
  const auto text_of = [&](const std::string& norm, const std::string& other) {
    const NormCheck check = like(norm, other);
    CHECK_MESSAGE(check.outcome == CheckOutcome::failed, norm, ": ", check.text);
    return check.text;
  };
  CHECK(text_of("group:2", "group:1").find("numbers with mean 2 and deviation 1: output ") == 0);
  // Another eps shows in small numbers, another momentum in evaluation alone.
  CHECK(text_of("layer2d[eps=2e-6]", "layer2d[eps=1e-6]").find("output ") != std::string::npos);
  CHECK(text_of("group:1[eps=1.001e-5]", "group:1").find("numbers with mean 0.002 and deviation 0.001: output ") == 0);
  CHECK(text_of("batch[momentum=0.2]", "batch").find("numbers with mean 2 and deviation 1: output in evaluation ") ==
        0);
  CHECK(like("group:1[affine=false]", "group:1").text.ends_with("; only one of the two has weight, bias"));
}

TEST_CASE("check_norm: like another norm, but for the gradient of the weight") {
  const auto of_weight = [](double factor) {
    nn::register_norm("faulty", [factor](int64_t channels) {
      static double kept = 1;
      kept = factor;
      return std::make_shared<Faulty>(channels, [](const Tensor& x, const Tensor& weight) {
        return layer_norm(
            x, Op("off").record({weight}, weight.detach(), {},
                                [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy * kept}; }));
      });
    });
    return check_norm("faulty", {.quick = true, .like = "layer2d[eps=1e-5]"}).checks.front();
  };
  CHECK(of_weight(1).text.ends_with("; only one of the two has bias"));
  CHECK(of_weight(1.01).text ==
        "numbers with mean 2 and deviation 1: gradient of weight 1e-02 away, as a share of the largest number; "
        "expected at most 1e-06");
  CHECK(of_weight(std::numeric_limits<double>::quiet_NaN()).outcome == CheckOutcome::failed);
}

TEST_CASE("check_norm: like another norm, but for the size of a parameter") {
  /// layer2d with one weight for all channels, of which 1 is right.
  class OneWeight : public nn::Module {
   public:
    OneWeight() : weight_(register_parameter("weight", ones({1}))) {}
    Tensor forward(const Tensor& x) override {
      const Tensor without = full({x.size(1)}, 1, {.dtype = x.dtype()});
      return mul(layer_norm(x, without), view(weight_, {1, 1, 1, 1}));
    }
    [[nodiscard]] std::string name() const override { return "OneWeight"; }

   private:
    Tensor weight_;
  };
  nn::register_norm("one_weight", [](int64_t /*channels*/) { return std::make_shared<OneWeight>(); });
  const NormCheckReport report = check_norm("one_weight", {.quick = true, .like = "layer2d[eps=1e-5]"});
  CHECK_MESSAGE(
      report.checks.front().text.ends_with("; only one of the two has bias; the two have weight of sizes [1] and [16]"),
      report.checks.front().text);
}

TEST_CASE("check_norm: error texts, and the table") {
  CHECK_THROWS_WITH_AS(check_norm("batch", {.like = "bath"}), "norm: unknown norm 'bath'; did you mean 'batch'?",
                       Error);
  CHECK_THROWS_WITH_AS(check_norm("bath"), "norm: unknown norm 'bath'; did you mean 'batch'?", Error);
  const NormCheckReport report{
      .norm = "my", .checks = {{"sizes", CheckOutcome::passed, ""}, {"copies", CheckOutcome::failed, "two"}}};
  CHECK(to_text(report) == "check\nsizes   ok\ncopies  FAILED  two\n");
}
