#include "nn/norm/factory.h"

#include "built_in_norm_names.h"
#include "error_text.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;

namespace {

std::string built(const std::string& text, int64_t channels) {
  return make_norm(text, channels)->name();
}

}  // namespace

TEST_CASE("norm factory: names and their defaults") {
  CHECK(built("batch", 12) == "BatchNorm2d(12, eps=1e-05, momentum=0.1)");
  CHECK(built("sync_batch", 12) == "SyncBatchNorm2d(12, eps=1e-05, momentum=0.1)");
  CHECK(built("layer2d", 12) == "LayerNorm2d(12, eps=1e-06)");
  CHECK(built("frozen_batch", 12) == "FrozenBatchNorm2d(12, eps=1e-05)");
  CHECK(built("ghost_batch", 12) == "GhostBatchNorm2d(12, sub_batch=32, eps=1e-05, momentum=0.1)");
  CHECK(built("batch_renorm", 12) == "BatchRenorm2d(12, r_max=3, d_max=5, eps=1e-05, momentum=0.1)");
  CHECK(built("rms2d", 12) == "RMSNorm2d(12, eps=1e-06)");
  CHECK(built("simple2d", 12) == "SimpleNorm2d(12, eps=1e-06)");
  CHECK(built("local_response", 12) == "LocalResponseNorm(5, alpha=0.0001, beta=0.75, k=1)");
  CHECK(built("evonorm_b0", 12) == "EvoNorm2dB0(12, eps=0.001, momentum=0.1)");
  CHECK(built("evonorm_s0", 12) == "EvoNorm2dS0(12, 12, eps=1e-05)");
  CHECK(built("frn", 12) == "FilterResponseNormTlu2d(12, eps=1e-05)");
  CHECK(built("grn", 12) == "GlobalResponseNorm(12, eps=1e-06)");
  CHECK(built("dyt", 12) == "DynamicTanh(12, alpha=0.5)");
  CHECK(built("derf", 12) == "DynamicErf(12, alpha=0.5, shift=0)");
  CHECK(built("seednorm", 12) == "SeedNorm(12, eps=1e-06)");
  CHECK(built("instance", 12) == "InstanceNorm2d(12, eps=1e-05)");
  CHECK(built("none", 12) == "NoNorm");
  CHECK(make_norm("none", 12)->state_dict().empty());
  const std::vector<std::string> names = norm_names();
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 19) ==
        std::vector<std::string>{"batch", "sync_batch", "frozen_batch", "ghost_batch", "batch_renorm", "layer2d",
                                 "group", "instance", "rms2d", "simple2d", "local_response", "evonorm_b0", "evonorm_s0",
                                 "frn", "grn", "dyt", "derf", "seednorm", "none"});
}

TEST_CASE("norm factory: number of groups") {
  CHECK(built("group", 64) == "GroupNorm(32, 64, eps=1e-05)");
  CHECK(built("group", 40) == "GroupNorm(20, 40, eps=1e-05)");
  CHECK(built("group", 31) == "GroupNorm(31, 31, eps=1e-05)");
  CHECK(built("group", 37) == "GroupNorm(1, 37, eps=1e-05)");
  CHECK(built("group:4", 40) == "GroupNorm(4, 40, eps=1e-05)");
  CHECK(built("group/8", 40) == "GroupNorm(5, 40, eps=1e-05)");
  CHECK(built("evonorm_s0", 64) == "EvoNorm2dS0(32, 64, eps=1e-05)");
  CHECK(built("evonorm_s0:4", 40) == "EvoNorm2dS0(4, 40, eps=1e-05)");
  CHECK(built("evonorm_s0/8", 40) == "EvoNorm2dS0(5, 40, eps=1e-05)");
}

TEST_CASE("norm factory: options in brackets") {
  CHECK(built("batch[momentum=0.01,eps=1e-3]", 8) == "BatchNorm2d(8, eps=0.001, momentum=0.01)");
  CHECK(built("batch[momentum=none]", 8) == "BatchNorm2d(8, eps=1e-05, momentum=none)");
  CHECK(built("layer2d[statistics=sum_of_squares]", 8) == "LayerNorm2d(8, eps=1e-06, statistics=sum_of_squares)");
  CHECK(built("group:2[eps=1e-3]", 8) == "GroupNorm(2, 8, eps=0.001)");
  CHECK(built("batch[biased_running_var=true]", 8) ==
        "BatchNorm2d(8, eps=1e-05, momentum=0.1, biased_running_var=true)");
  CHECK(built("batch[biased_running_var=false]", 8) == "BatchNorm2d(8, eps=1e-05, momentum=0.1)");
  CHECK(built("frozen_batch[eps=0]", 8) == "FrozenBatchNorm2d(8, eps=0)");
  CHECK(built("ghost_batch[sub_batch=8,momentum=none,biased_running_var=true]", 8) ==
        "GhostBatchNorm2d(8, sub_batch=8, eps=1e-05, momentum=none, biased_running_var=true)");
  CHECK(built("batch_renorm[r_max=1,d_max=0,eps=1e-3,statistics=welford]", 8) ==
        "BatchRenorm2d(8, r_max=1, d_max=0, eps=0.001, momentum=0.1, statistics=welford)");
  CHECK(built("rms2d[eps=1e-3]", 8) == "RMSNorm2d(8, eps=0.001)");
  CHECK(built("simple2d[statistics=two_pass]", 8) == "SimpleNorm2d(8, eps=1e-06, statistics=two_pass)");
  CHECK(built("local_response[size=3,alpha=1,beta=0.5,k=2]", 8) == "LocalResponseNorm(3, alpha=1, beta=0.5, k=2)");
  CHECK(built("evonorm_b0[momentum=0.5,eps=1,statistics=compensated]", 8) ==
        "EvoNorm2dB0(8, eps=1, momentum=0.5, statistics=compensated)");
  CHECK(built("evonorm_s0:2[eps=1]", 8) == "EvoNorm2dS0(2, 8, eps=1)");
  CHECK(built("frn[eps=1e-6]", 8) == "FilterResponseNormTlu2d(8, eps=1e-06)");
  CHECK(built("grn[eps=1e-3]", 8) == "GlobalResponseNorm(8, eps=0.001)");
  CHECK(built("dyt[alpha=1]", 8) == "DynamicTanh(8, alpha=1)");
  CHECK(built("derf[alpha=0.8,shift=-0.1]", 8) == "DynamicErf(8, alpha=0.8, shift=-0.1)");
  CHECK(built("batch[bias=false]", 8) == "BatchNorm2d(8, eps=1e-05, momentum=0.1, bias=false)");
  CHECK(built("batch[affine=false]", 8) == "BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=false)");
  CHECK(built("batch[track_running_stats=false]", 8) ==
        "BatchNorm2d(8, eps=1e-05, momentum=0.1, track_running_stats=false)");
  CHECK(built("ghost_batch[bias=false,track_running_stats=false]", 8) ==
        "GhostBatchNorm2d(8, sub_batch=32, eps=1e-05, momentum=0.1, bias=false, track_running_stats=false)");
  CHECK(built("batch_renorm[bias=false]", 8) ==
        "BatchRenorm2d(8, r_max=3, d_max=5, eps=1e-05, momentum=0.1, bias=false)");
  CHECK(built("batch_renorm[warmup_steps=5000,r_ramp_steps=35000,d_ramp_steps=20000]", 8) ==
        "BatchRenorm2d(8, r_max=3, d_max=5, warmup_steps=5000, r_ramp_steps=35000, d_ramp_steps=20000, eps=1e-05, "
        "momentum=0.1)");
  CHECK(built("batch_renorm[warmup_steps=0]", 8) == built("batch_renorm", 8));
  CHECK(built("layer2d[bias=false]", 8) == "LayerNorm2d(8, eps=1e-06, bias=false)");
  CHECK(built("group:2[affine=false]", 8) == "GroupNorm(2, 8, eps=1e-05, affine=false)");
  CHECK(built("group/2[bias=false,eps=1]", 8) == "GroupNorm(4, 8, eps=1, bias=false)");
  CHECK(built("group[bias=false]", 8) == "GroupNorm(8, 8, eps=1e-05, bias=false)");
  CHECK(built("instance[track_running_stats=true,momentum=0.01]", 8) ==
        "InstanceNorm2d(8, eps=1e-05, track_running_stats=true, momentum=0.01)");
  CHECK(built("instance[affine=false]", 8) == "InstanceNorm2d(8, eps=1e-05, affine=false)");
  CHECK(built("instance[bias=false]", 8) == "InstanceNorm2d(8, eps=1e-05, bias=false)");
  CHECK(built("rms2d[offset=true]", 8) == "RMSNorm2d(8, eps=1e-06, offset=true)");
  CHECK(built("rms2d[groups=2]", 8) == "RMSNorm2d(groups=2, 8, eps=1e-06)");
  CHECK(built("layer2d[offset=true,bias=false]", 8) == "LayerNorm2d(8, eps=1e-06, bias=false, offset=true)");
  CHECK(built("seednorm[offset=true]", 8) == "SeedNorm(8, eps=1e-06, offset=true)");
  CHECK(error_of([] { make_norm("rms2d[groups=3]", 8); }) ==
        "rms_norm_2d: num_channels must be divisible by num_groups, got num_channels 8, num_groups 3");
  CHECK(built("rms2d[affine=false]", 8) == "RMSNorm2d(8, eps=1e-06, affine=false)");
  CHECK(built("simple2d[affine=false]", 8) == "SimpleNorm2d(8, eps=1e-06, affine=false)");
  CHECK(to_string(parse_norm("batch[momentum=0.01,eps=1e-3]")) == "batch[eps=1e-3,momentum=0.01]");
  CHECK(to_string(parse_norm("group/8")) == "group/8");
  CHECK(to_string(parse_norm("group:8[eps=0]")) == "group:8[eps=0]");
}

TEST_CASE("norm factory: a spec with all options is the same for all ways of writing a norm") {
  const auto complete = [](const std::string& text) { return to_string(complete_choice(parse_norm(text))); };
  CHECK(complete("batch") == complete("batch[eps=1e-5]"));
  CHECK(complete("batch") == complete("batch[momentum=0.1,affine=true,eps=0.00001]"));
  CHECK(complete("batch") != complete("batch[eps=1e-6]"));
  CHECK(complete("batch") != complete("batch[momentum=none]"));
  CHECK(complete("batch[momentum=none]") == complete("batch[eps=1e-5,momentum=none]"));
  CHECK(complete("group:8") == complete("group:8[statistics=stable]"));
  CHECK(complete("group:8") != complete("group/8"));
  CHECK(complete("group") != complete("group:32"));
  CHECK(complete("local_response") == complete("local_response[size=5]"));
  CHECK(complete("rms2d[groups=4]") == "rms2d[affine=true,eps=1e-06,groups=4,offset=false]");
  CHECK(complete("none") == "none");
  for (const std::string& name : norm_names()) {
    CHECK_MESSAGE(complete(name).starts_with(name), name);
  }
}

TEST_CASE("norm factory: a network's own default does not overrule the spec") {
  CHECK(to_string(with_default(parse_norm("batch"), "eps", "1e-6")) == "batch[eps=1e-6]");
  CHECK(to_string(with_default(parse_norm("batch[eps=1]"), "eps", "1e-6")) == "batch[eps=1]");
  CHECK(to_string(with_default(parse_norm("none"), "eps", "1e-6")) == "none");
}

TEST_CASE("norm factory: error texts") {
  const auto error = [](const std::string& text) { return error_of([&] { parse_norm(text); }); };
  CHECK(error("bath") == "norm: unknown norm 'bath'; did you mean 'batch'?");
  CHECK(error("") == "norm: unknown norm ''; did you mean 'frn'?");
  CHECK(error("batch[epz=1]") == "norm: batch: unknown option 'epz'; did you mean 'eps'?");
  CHECK(error("none[eps=1]") == "norm: none: takes no options, got 'eps'");
  CHECK(error("batch[eps=small]") == "norm: batch: eps: expected a number, got 'small'");
  CHECK(error("batch[eps=-1]") == "norm: batch: eps: expected a number >= 0, got -1");
  CHECK(error("batch[momentum=2]") == "norm: batch: momentum: expected a number in [0, 1] or none, got 2");
  CHECK(error("batch[eps=1,eps=2]") == "norm: batch: option 'eps' is given twice");
  for (const char* text :
       {"batch[", "batch[]", "batch[eps]", "batch[eps=]", "batch[=1]", "batch[eps=1", "batch[eps=1,]"}) {
    CAPTURE(text);
    CHECK(error(text) == fmt::format("norm: options: expected name[option=value,...], got '{}'", text));
  }
  CHECK(error("batch[biased_running_var=yes]") == "norm: batch: biased_running_var: expected true or false, got 'yes'");
  CHECK(error("frozen_batch[momentum=0.1]") == "norm: frozen_batch: unknown option 'momentum'; did you mean 'eps'?");
  CHECK(error("ghost_batch[sub_batch=0]") == "norm: ghost_batch: sub_batch: expected a positive whole number, got '0'");
  CHECK(error("ghost_batch[sub_batch=1.5]") ==
        "norm: ghost_batch: sub_batch: expected a positive whole number, got '1.5'");
  CHECK(error("ghost_batch[momentum=-1]") ==
        "norm: ghost_batch: momentum: expected a number in [0, 1] or none, got -1");
  CHECK(error("batch[bias=0]") == "norm: batch: bias: expected true or false, got '0'");
  CHECK(error("group:8[affine=no]") == "norm: group: affine: expected true or false, got 'no'");
  CHECK(error("rms2d[affine=1]") == "norm: rms2d: affine: expected true or false, got '1'");
  CHECK(error("rms2d[bias=false]") == "norm: rms2d: unknown option 'bias'; did you mean 'eps'?");
  CHECK(error("instance[momentum=0.01]") ==
        "norm: instance: momentum: expected running statistics, which track_running_stats=true keeps, got none");
  CHECK(error("instance[momentum=none]") == "norm: instance: momentum: expected a number, got 'none'");
  CHECK(error("instance[track_running_stats=yes]") ==
        "norm: instance: track_running_stats: expected true or false, got 'yes'");
  CHECK(error("batch_renorm[warmup_steps=-1]") == "norm: batch_renorm: warmup_steps: expected a number >= 0, got -1");
  CHECK(error("batch_renorm[r_ramp_steps=1.5]") ==
        "norm: batch_renorm: r_ramp_steps: expected a whole number >= 0, got 1.5");
  CHECK(error("batch_renorm[d_ramp_steps=x]") == "norm: batch_renorm: d_ramp_steps: expected a number, got 'x'");
  CHECK(error("batch_renorm[track_running_stats=false]") ==
        "norm: batch_renorm: unknown option 'track_running_stats'; did you mean 'biased_running_var'?");
  CHECK(error("batch_renorm[r_max=0.5]") == "norm: batch_renorm: r_max: expected a number >= 1, got 0.5");
  CHECK(error("batch_renorm[d_max=-1]") == "norm: batch_renorm: d_max: expected a number >= 0, got -1");
  CHECK(error("batch_renorm[d_max=inf]") == "norm: batch_renorm: d_max: expected a number >= 0, got inf");
  CHECK(error("local_response[size=99999999999]") ==
        "norm: local_response: size: expected a whole number from 1 to 65536, got 99999999999");
  CHECK(error("local_response[size=0]") == "norm: local_response: size: expected a positive whole number, got '0'");
  CHECK(error("local_response[alpha=nan]") == "norm: local_response: alpha: expected a finite number, got nan");
  CHECK(error("local_response[eps=1]") == "norm: local_response: unknown option 'eps'; did you mean 'beta'?");
  CHECK(error("evonorm_b0[momentum=none]") == "norm: evonorm_b0: momentum: expected a number, got 'none'");
  CHECK(error("evonorm_b0[momentum=2]") == "norm: evonorm_b0: momentum: expected a number in [0, 1], got 2");
  CHECK(error("evonorm_s0:0") == "norm: evonorm_s0: groups: expected a positive whole number, got '0'");
  CHECK(error("rms2d[statistics=welford]") == "norm: rms2d: unknown option 'statistics'; did you mean 'affine'?");
  for (const std::string name : {"layer2d", "rms2d"}) {
    CHECK(error(name + "[affine=false,offset=true]") ==
          "norm: " + name + ": offset: expected false where affine=false leaves out the weight, got true");
    CHECK(error(name + "[affine=false,offset=false]") == "no error");
  }
  CHECK(error("frn[eps=-1]") == "norm: frn: eps: expected a number >= 0, got -1");
  CHECK(error("grn[eps=x]") == "norm: grn: eps: expected a number, got 'x'");
  CHECK(error("derf[shift=nan]") == "norm: derf: shift: expected a finite number, got nan");
  CHECK(error("dyt[alpha=inf]") == "norm: dyt: alpha: expected a finite number, got inf");
  CHECK(error("evonorm_s1") == "norm: unknown norm 'evonorm_s1'; did you mean 'evonorm_s0'?");
  CHECK(error("batch:32") == "norm: batch: takes no groups, got 'batch:32'");
  CHECK(error("group:") == "norm: group: groups: expected a positive whole number, got ''");
  CHECK(error("group:0") == "norm: group: groups: expected a positive whole number, got '0'");
  CHECK(error("group/2x") == "norm: group: groups: expected a positive whole number, got '2x'");
  for (const char* text : {"group:1000000000", "group/1000000000", "rms2d[groups=1000000000]"}) {
    CAPTURE(text);
    CHECK(error(text).ends_with(": groups: expected a whole number from 1 to 65536, got 1000000000"));
  }
  CHECK(error("layer2d[statistics=stabel]") != "no error");
}

TEST_CASE("norm factory: groups that do not divide the channels") {
  CHECK(error_of([] { make_norm("group:4", 30); }) ==
        "group_norm: num_channels must be divisible by num_groups, got num_channels 30, num_groups 4");
  CHECK(error_of([] { make_norm("group/8", 30); }) ==
        "group_norm: num_channels must be divisible by the channels per group, got num_channels 30, channels per group "
        "8");
  CHECK(error_of([] { make_norm("evonorm_s0:4", 30); }) ==
        "evo_norm_s0: num_channels must be divisible by num_groups, got num_channels 30, num_groups 4");
  CHECK(error_of([] { make_norm("evonorm_s0/8", 30); }) ==
        "evo_norm_s0: num_channels must be divisible by the channels per group, got num_channels 30, channels per "
        "group 8");
}

TEST_CASE("norm factory: which norms leave nothing of a single pixel") {
  std::string names;
  for (const std::string& name : test::built_in_norm_names()) {
    names += norm_definition(name).needs_pixels ? name + " " : "";
  }
  CHECK(names == "instance frn ");
}

TEST_CASE("norm factory: every norm keeps sizes, dtype and memory format, and gives each parameter a gradient") {
  for (const std::string& name : test::built_in_norm_names()) {
    CAPTURE(name);
    const auto norm = make_norm(name, 8);
    for (const auto& [parameter_name, parameter] : norm->named_parameters()) {
      if (name == "seednorm" && parameter_name == "beta") {
        copy_into(full(parameter.sizes(), 0.1), parameter);  // alpha has no gradient while it is 0
      }
    }
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      Tensor x = copy_of(test::random_tensor({4, 8, 3, 5}, 1, DType::float32), format);
      x.set_requires_grad();
      norm->zero_grad();
      const Tensor y = (*norm)(x);
      CHECK(y.sizes() == x.sizes());
      CHECK(y.dtype() == x.dtype());
      CHECK(y.strides() == x.strides());
      const Tensor dy = test::random_tensor(x.sizes(), 2, DType::float32);
      const bool is_identity = y.is_same(x);  // its gradient is dy
      CHECK((is_identity || grad({y}, {x}, {dy}, {.retain_graph = true})[0].strides() == x.strides()));
      y.backward(dy);
      for (const auto& [parameter_name, parameter] : norm->named_parameters()) {
        CAPTURE(parameter_name);
        REQUIRE(parameter.grad().defined());
        CHECK(test::largest_number(parameter.grad()) > 1e-3);
      }
    }
  }
}

TEST_CASE("norm factory: every option of every norm changes what the layer computes") {
  const std::map<std::string, std::string> values = {{"eps", "0.5"},
                                                     {"momentum", "0.9"},
                                                     {"alpha", "0.25"},
                                                     {"shift", "0.25"},
                                                     {"statistics", "sum_of_squares"},
                                                     {"sub_batch", "2"},
                                                     {"biased_running_var", "true"},
                                                     {"r_max", "1"},
                                                     {"d_max", "0"},
                                                     {"size", "3"},
                                                     {"beta", "0.5"},
                                                     {"k", "2"},
                                                     {"warmup_steps", "5"},
                                                     {"r_ramp_steps", "5"},
                                                     {"d_ramp_steps", "5"},
                                                     {"affine", "false"},
                                                     {"bias", "false"},
                                                     {"track_running_stats", "false"},
                                                     {"offset", "true"},
                                                     {"groups", "2"}};
  // One step of training, then evaluation; near 0, and far from it, where E[x²] - E[x]² cancels.
  const auto results = [](const std::string& spec) {
    std::vector<double> numbers;
    for (const double offset : {0.0, 300.0, -300.0}) {
      const Tensor x = to(add(test::random_tensor({6, 8, 3, 5}, 1), offset), DType::float32);
      const auto norm = make_norm(spec, 8);
      for (const auto& [name, p] : norm->named_parameters()) {
        if (name == "weight" || name == "bias") {  // that of grn starts at 0, as every bias
          copy_into(full(p.sizes(), 1.5), p);
        }
      }
      const NoGradGuard guard;
      for (const bool training : {true, false}) {
        norm->train(training);
        const std::vector<double> y = (*norm)(x).to_vector<double>();
        numbers.insert(numbers.end(), y.begin(), y.end());
      }
    }
    return numbers;
  };
  for (const std::string& name : test::built_in_norm_names()) {
    // Instance norms have a momentum only where they have running statistics, which they do not by themselves.
    const std::string with_statistics = name == "instance" ? "track_running_stats=true" : "";
    for (const std::string& option : norm_definition(name).options) {
      CAPTURE(name);
      CAPTURE(option);
      REQUIRE(values.contains(option));
      const std::string given = with_statistics.empty() || option == "track_running_stats" ? "" : with_statistics + ",";
      const std::string value = name == "instance" && option == "track_running_stats" ? "true" : values.at(option);
      const std::vector<double> plain = results(given.empty() ? name : fmt::format("{}[{}]", name, with_statistics));
      const std::vector<double> other = results(fmt::format("{}[{}{}={}]", name, given, option, value));
      double difference = 0;
      for (size_t i = 0; i < plain.size(); ++i) {
        difference = std::max(difference, std::abs(plain[i] - other[i]));
      }
      CHECK(difference > 1e-4);
    }
  }
}

TEST_CASE("norm factory: a norm of the user") {
  register_norm("mine", {.make =
                             [](const NormChoice& choice, int64_t channels) {
                               return std::make_shared<GroupNorm>(static_cast<int64_t>(choice.number("parts", 2)),
                                                                  channels);
                             },
                         .options = {"parts"}});
  CHECK(built("mine", 8) == "GroupNorm(2, 8, eps=1e-05)");
  CHECK(built("mine[parts=4]", 8) == "GroupNorm(4, 8, eps=1e-05)");
  CHECK(error_of([] { parse_norm("mine[part=4]"); }) == "norm: mine: unknown option 'part'; did you mean 'parts'?");
  register_norm("mine", [](int64_t) { return std::make_shared<Identity>(); });
  CHECK(built("mine", 8) == "Identity");
  for (const std::string& name : test::built_in_norm_names()) {
    CHECK(error_of([&] { register_norm(name, [](int64_t) { return std::make_shared<Identity>(); }); }) ==
          fmt::format("register_norm: name: expected one that is not built in, got '{}'", name));
  }
  CHECK(built("batch", 8) == "BatchNorm2d(8, eps=1e-05, momentum=0.1)");
  CHECK(error_of([] { register_norm("a:b", [](int64_t) { return std::make_shared<Identity>(); }); }) ==
        "register_norm: name: expected letters without any of ':/[],= ', got 'a:b'");
}

TEST_CASE("norm factory: errors quote no more than a line of a spec") {
  for (const std::string& spec :
       {"batch[eps=" + std::string(1'000'000, 'x') + "]", "batch[" + std::string(1'000'000, '[') + "]",
        "group:" + std::string(1'000'000, 'x'), std::string(10'000, '\n')}) {
    const std::string text = norma::test::error_of([&] { parse_norm(spec); });
    CHECK(text.size() < 500);
    CHECK(text.find('\n') == std::string::npos);
  }
}
