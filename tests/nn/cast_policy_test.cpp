#include "nn/cast_policy.h"

#include "base/error.h"
#include "error_text.h"
#include "files.h"
#include "paths.h"

#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::nn;
using test::error_of;

TEST_CASE("cast policy: the default") {
  const CastPolicy policy;
  for (const char* op : {"conv2d", "linear", "matmul", "scaled_dot_product_attention"}) {
    CHECK(policy.rule(op) == CastRule::lower);
  }
  for (const char* op : {"softmax", "log_softmax", "cross_entropy"}) {
    CHECK(policy.rule(op) == CastRule::float32);
  }
  for (const char* op : {"batch_norm", "layer_norm_2d", "group_norm", "relu", "gelu", "add", "sum", "max_pool2d"}) {
    CHECK(policy.rule(op) == CastRule::keep);
  }
}

namespace {

/// The texts of the .cpp files of ops/.
std::vector<std::string> sources_of_ops() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_folder() / "ops")) {
    if (entry.path().extension() == ".cpp") {
      texts.push_back(test::read_file(entry.path()));
    }
  }
  return texts;
}

}  // namespace

TEST_CASE("cast policy: an op says its name and its rule once, and every program knows it") {
  const std::regex name(R"re((?:named|OpName)<"([a-z0-9_]+)"(?:,\s*CastRule::([a-z0-9]+))?>)re");
  std::map<std::string, std::string> rules;
  for (const std::string& text : sources_of_ops()) {
    for (std::sregex_iterator found(text.begin(), text.end(), name), end; found != end; ++found) {
      const std::string rule = (*found)[2].matched ? (*found)[2].str() : "keep";
      const auto [op, fresh] = rules.emplace((*found)[1], rule);
      CHECK_MESSAGE(op->second == rule, op->first);
    }
  }
  CHECK(rules.size() >= 60);
  const CastPolicy policy;
  for (const auto& [op, rule] : rules) {  // this program does not call all of them: ops/families.cpp links them
    INFO(op);
    CHECK(policy.find(op) == cast_rule_from_string(rule));
  }
}

TEST_CASE("cast policy: a file changes what it names, its last line wins") {
  const CastPolicy policy = parse_cast_policy(
      "# norms in float32, but for one\n"
      "\"*_norm*\" = \"float32\"\n"
      "\"layer_norm_2d\" = \"lower\"\n"
      "gelu = 'lower'\n",
      "policy.toml");
  CHECK(policy.rule("batch_norm") == CastRule::float32);
  CHECK(policy.rule("evo_norm_b0") == CastRule::float32);
  CHECK(policy.rule("layer_norm_2d") == CastRule::lower);
  CHECK(policy.rule("gelu") == CastRule::lower);
  CHECK(policy.rule("conv2d") == CastRule::lower);
  const CastPolicy other = parse_cast_policy("\"layer_norm_2d\" = \"lower\"\n\"*_norm*\" = \"float32\"\n", "p");
  CHECK(other.rule("layer_norm_2d") == CastRule::float32);
  CHECK_FALSE(other == policy);
}

TEST_CASE("cast policy: error texts name file, line and column") {
  const auto error = [](const char* text) { return error_of([&] { parse_cast_policy(text, "p.toml"); }); };
  CHECK(error("\"relu\" = \"keep\"\n\"rulu\" = \"keep\"\n") ==
        "cast policy: p.toml:2:1: unknown op 'rulu'; did you mean 'relu'?");
  CHECK(error("\"conv*d3\" = \"keep\"\n").starts_with("cast policy: p.toml:1:1: unknown op 'conv*d3'"));
  CHECK(error("relu = \"keep\"\n\"relu\" = \"float32\"\n") ==
        "cast policy: p.toml:2:10: 'relu': expected each pattern once, got it again");
  CHECK(error("relu = \"fp32\"\n") == "cast policy: p.toml:1:1: 'relu': expected lower, float32 or keep, got 'fp32'");
  CHECK(error("relu = 32\n") ==
        "cast policy: p.toml:1:1: 'relu': expected \"lower\", \"float32\" or \"keep\", got another type");
  CHECK(error("[relu]\n").starts_with("cast policy: p.toml:1:"));
  CHECK(error("") == "cast policy: p.toml: expected lines \"op\" = \"rule\", got none");
  CHECK(error("relu = ").starts_with("cast policy: p.toml:1:"));
  CHECK(error_of([] { read_cast_policy("/no/such/file"); }) ==
        "cast policy: cannot open /no/such/file: No such file or directory");
}

TEST_CASE("cast policy: single changes, and a policy as a text") {
  CastPolicy policy;
  set_cast(policy, "*_norm=float32");
  set_cast(policy, "batch_norm=keep");
  CHECK(policy.rule("layer_norm") == CastRule::float32);
  CHECK(policy.rule("batch_norm") == CastRule::keep);
  CHECK(parse_cast_policy(to_text(policy), "p") == policy);
  CHECK(parse_cast_policy(to_text(CastPolicy()), "p") == CastPolicy());
  const auto error = [](const char* text) {
    CastPolicy other;
    return error_of([&] { set_cast(other, text); });
  };
  CHECK(error("relu") == "cast: expected the name of an op, = and a rule, as in layer_norm_2d=lower, got 'relu'");
  CHECK(error("relo=keep") == "cast: 'relo=keep': unknown op 'relo'; did you mean 'relu'?");
  CHECK(error("relu=half").starts_with("cast: 'relu=half': "));
}
