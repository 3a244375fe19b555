#include "nn/norm_factory.h"

#include "error_text.h"
#include "nn/norm.h"
#include "nn/sequential.h"

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
  CHECK(built("layer2d", 12) == "LayerNorm2d(12, eps=1e-06)");
  CHECK(built("instance", 12) == "InstanceNorm2d(12, eps=1e-05)");
  CHECK(built("none", 12) == "NoNorm");
  CHECK(make_norm("none", 12)->state_dict().empty());
  const std::vector<std::string> names = norm_names();
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 5) ==
        std::vector<std::string>{"batch", "layer2d", "group", "instance", "none"});
}

TEST_CASE("norm factory: number of groups") {
  CHECK(built("group", 64) == "GroupNorm(32, 64, eps=1e-05)");
  CHECK(built("group", 40) == "GroupNorm(20, 40, eps=1e-05)");
  CHECK(built("group", 31) == "GroupNorm(31, 31, eps=1e-05)");
  CHECK(built("group", 37) == "GroupNorm(1, 37, eps=1e-05)");
  CHECK(built("group:4", 40) == "GroupNorm(4, 40, eps=1e-05)");
  CHECK(built("group/8", 40) == "GroupNorm(5, 40, eps=1e-05)");
}

TEST_CASE("norm factory: options in brackets") {
  CHECK(built("batch[momentum=0.01,eps=1e-3]", 8) == "BatchNorm2d(8, eps=0.001, momentum=0.01)");
  CHECK(built("batch[momentum=none]", 8) == "BatchNorm2d(8, eps=1e-05, momentum=none)");
  CHECK(built("layer2d[statistics=sum_of_squares]", 8) == "LayerNorm2d(8, eps=1e-06, statistics=sum_of_squares)");
  CHECK(built("group:2[eps=1e-3]", 8) == "GroupNorm(2, 8, eps=0.001)");
  CHECK(to_string(parse_norm("batch[momentum=0.01,eps=1e-3]")) == "batch[eps=1e-3,momentum=0.01]");
  CHECK(to_string(parse_norm("group/8")) == "group/8");
  CHECK(to_string(parse_norm("group:8[eps=0]")) == "group:8[eps=0]");
}

TEST_CASE("norm factory: a network's own default does not overrule the spec") {
  CHECK(to_string(with_default(parse_norm("batch"), "eps", "1e-6")) == "batch[eps=1e-6]");
  CHECK(to_string(with_default(parse_norm("batch[eps=1]"), "eps", "1e-6")) == "batch[eps=1]");
  CHECK(to_string(with_default(parse_norm("none"), "eps", "1e-6")) == "none");
}

TEST_CASE("norm factory: error texts") {
  const auto error = [](const std::string& text) { return error_of([&] { parse_norm(text); }); };
  CHECK(error("bath") == "norm: unknown norm 'bath'; did you mean 'batch'?");
  CHECK(error("") == "norm: unknown norm ''; did you mean 'none'?");
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
  CHECK(error("batch:32") == "norm: batch: takes no groups, got 'batch:32'");
  CHECK(error("group:") == "norm: group: groups: expected a positive whole number, got ''");
  CHECK(error("group:0") == "norm: group: groups: expected a positive whole number, got '0'");
  CHECK(error("group/2x") == "norm: group: groups: expected a positive whole number, got '2x'");
  CHECK(error("layer2d[statistics=stabel]") != "no error");
}

TEST_CASE("norm factory: groups that do not divide the channels") {
  CHECK(error_of([] { make_norm("group:4", 30); }) ==
        "group_norm: num_channels must be divisible by num_groups, got num_channels 30, num_groups 4");
  CHECK(error_of([] { make_norm("group/8", 30); }) ==
        "group_norm: num_channels must be divisible by the channels per group, got num_channels 30, channels per group "
        "8");
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
  CHECK(error_of([] { register_norm("a:b", [](int64_t) { return std::make_shared<Identity>(); }); }) ==
        "register_norm: name: expected letters without any of ':/[],= ', got 'a:b'");
}
