#include "lab/compare/comparison.h"
#include "lab/report/decisions.h"
#include "lab/studies/study.h"

#include "error_text.h"
#include "files.h"

#include <doctest/doctest.h>

#include <string>

// Studies as files.

using namespace norma;
using namespace norma::lab;
using test::error_of;

namespace {

const std::string kFile =
    "question = \"whether mine is better\"\n"
    "models = [\"convnext_atto\"]\n"
    "norms = [\"layer2d\", \"dyt[alpha=0.2]\"]\n"
    "batch-sizes = [16, 32]\n"
    "lrs = [1e-3]\n"
    "weight-decay = [0.02, 0.08]\n"
    "opt = [\"adamw\", \"muon\"]\n"
    "seeds = [3, 4]\n"
    "classes = [0, 2]\n"
    "lr-scaling = \"sqrt\"\n";
const std::string kClaim =
    "claim = \"mine is better\"\n"
    "source = \"a paper\"\n"
    "setting = \"small networks\"\n";

Study study_in(const std::string& text) {
  return study_from_toml(text, "my.toml", "my");
}

std::string refused(const std::string& text) {
  return error_of([&] { study_in(text); });
}

/// The claim's only expectation.
Expectation expected(const std::string& text) {
  return study_in(kFile + kClaim + "expect = [\"" + text + "\"]\n").claim->expectations.front();
}

}  // namespace

TEST_CASE("study file: a grid, without a claim and with one") {
  const Study study = study_in(kFile);
  CHECK(study.name == "my");
  CHECK(study.question == "whether mine is better");
  CHECK(study.norms == std::vector<std::string>{"layer2d", "dyt[alpha=0.2]"});
  CHECK(study.batch_sizes == std::vector<int64_t>{16, 32});
  CHECK(study.lrs == std::vector<double>{1e-3});
  CHECK(study.options.at("weight-decay") == std::vector<std::string>{"0.02", "0.08"});
  CHECK(study.options.at("opt") == std::vector<std::string>{"adamw", "muon"});
  CHECK(study.seeds == std::vector<uint64_t>{3, 4});
  CHECK(study.classes == std::vector<int64_t>{0, 2});
  CHECK(study.budget_test_images == 2000);
  CHECK_FALSE(study.claim);
  ComparisonOptions options;
  apply_study(study, options);
  CHECK(options.lr_scaling == LrScaling::sqrt);
  const Study claims = study_in(kFile + kClaim + "beside = \"opt\"\nexpect = [\"dyt > layer2d\"]\n");
  REQUIRE(claims.claim);
  CHECK(claims.claim->sentence == "mine is better");
  CHECK(claims.claim->beside == "opt");
  CHECK(claims.budget_test_images == 4000);
  CHECK(study_in(kFile + kClaim + "budget-test-images = 0\nexpect = [\"dyt > layer2d\"]\n").budget_test_images == 0);
}

TEST_CASE("study file: what a claim expects") {
  using Sign = Expectation::Sign;
  CHECK(expected("dyt > layer2d").sign == Sign::more);
  CHECK(expected("dyt < layer2d").sign == Sign::less);
  CHECK(expected("dyt = layer2d").sign == Sign::none);
  CHECK(expected("dyt <= layer2d").sign == Sign::not_more);
  const Expectation values = expected("training loss: batch lr=0.05 opt=sgd != batch lr=0.2 opt=muon");
  CHECK(values.sign == Sign::any);
  CHECK(values.measure == Expectation::Measure::training_loss);
  CHECK(values.norm == "batch");
  CHECK(values.with == std::map<std::string, std::string>{{"lr", "0.05"}, {"opt", "sgd"}});
  CHECK(values.reference_with == std::map<std::string, std::string>{{"lr", "0.2"}, {"opt", "muon"}});
  const Expectation others = expected("batch lr=5e-4 weight-decay=2e-2 = batch lr=2.0e-3 weight-decay=0.080");
  CHECK(others.with == std::map<std::string, std::string>{{"lr", "0.0005"}, {"weight-decay", "0.02"}});
  CHECK(others.reference_with == std::map<std::string, std::string>{{"lr", "0.002"}, {"weight-decay", "0.08"}});
  CHECK(expected("dyt > layer2d, weight-decay 2e-2 beside 8e-2").at == "0.02");
  const Expectation growth = expected("growth: batch norm-placement=peri < batch norm-placement=pre");
  CHECK(growth.sign == Sign::less);
  CHECK(growth.measure == Expectation::Measure::growth);
  CHECK(growth.with == std::map<std::string, std::string>{{"norm-placement", "peri"}});
  const Expectation fails = expected("batch lr=0.1 fails");
  CHECK(fails.sign == Sign::fails);
  CHECK(fails.norm == "batch");
  CHECK(fails.with == std::map<std::string, std::string>{{"lr", "0.1"}});
  const Expectation axis = expected("derf > rms2d, opt adamw beside muon");
  CHECK(axis.axis == "opt");
  CHECK(axis.at == "adamw");
  CHECK(axis.than == "muon");
  const Expectation ends = expected("dyt > layer2d, train-images least beside most");
  CHECK(ends.axis == "train-images");
  CHECK(ends.at.empty());
  CHECK(ends.than.empty());
}

TEST_CASE("study file: what is no study is an error that says where") {
  CHECK(refused("norm = [\"batch\"]\n") == "study: my.toml:1:1: unknown key 'norm'; did you mean 'norms'?");
  CHECK(refused("norms = \"batch\"\n") == "study: my.toml:1:9: norms: expected a list of texts or numbers");
  CHECK(refused("seeds = [0, -1]\n") == "study: my.toml:1:9: seeds: expected a list of numbers, got '-1'");
  CHECK(refused("question = 3\n") == "study: my.toml:1:12: question: expected a text");
  CHECK(refused("weights = [\"first\"]\n") ==
        "study: my.toml:1:11: weights: expected last, ema or ema-recalibrated, got 'first'");
  CHECK(refused("norms = [\"batch\"]\n") == "study: my.toml: expected a line 'question = …', got none");
  CHECK(refused(kFile + "claim = \"x\"\n") ==
        "study: my.toml: expected a line 'source = …' beside the others of a claim, got none");
  const auto wrong = [&](const std::string& text) { return error_of([&] { expected(text); }); };
  CHECK(wrong("dyt layer2d") ==
        "study: my.toml:14:10: expect: expected two norms with >, <, =, <= or != between them, got 'dyt layer2d'");
  CHECK(wrong("fails") ==
        "study: my.toml:14:10: expect: expected two norms with >, <, =, <= or != between them, got 'fails'");
  ComparisonOptions places{.models = {"vit_tiny"}, .norms = {"layer2d"}, .seeds = {0}};
  places.options["norm-placement"] = {"pre", "sides"};
  CHECK(error_of([&] { plan_comparison(places); }) ==
        "train: norm-placement: unknown placement 'sides'; did you mean 'inside'?");
  places.options["norm-placement"] = {"pre", "post"};
  places.models = {"vit_tiny", "resnet18"};
  CHECK(error_of([&] { plan_comparison(places); }) ==
        "compare: norm-placement: expected a network that has this option, got vit_tiny, resnet18");
  CHECK(wrong("dyt >") == "study: my.toml:14:10: expect: expected a norm on both sides, got 'dyt >'");
  CHECK(wrong("batch lr=1 = batch") ==
        "study: my.toml:14:10: expect: expected values of the same axes on both sides, got 'batch lr=1 = batch'");
  CHECK(wrong("batch much = batch") == "study: my.toml:14:10: expect: expected axis=value after a norm, got 'much'");
  CHECK(wrong("batch optt=1 = batch optt=2") ==
        "study: my.toml:14:10: expect: unknown axis 'optt'; did you mean 'opt'?");
  CHECK(wrong("batch lr=x = batch lr=1") == "study: my.toml:14:10: expect: lr: expected a number, got 'x'");
  CHECK(wrong("dyt > batch, weight-decay 0 beside much") ==
        "study: my.toml:14:10: expect: weight-decay: expected a value of that option, got 'much'");
  CHECK(refused(kFile + kClaim + "beside = \"optt\"\n") ==
        "study: my.toml:14:10: beside: unknown axis 'optt'; did you mean 'opt'?");
  CHECK(wrong("dyt > batch, opt muon") ==
        "study: my.toml:14:10: expect: expected an axis with two values, as 'opt adamw beside muon', after the comma, "
        "got 'dyt > batch, opt muon'");
  CHECK(error_of([] { study_named("nowhere.toml"); }).starts_with("study: "));
  CHECK(error_of([] { study_named("dytt"); }) == "study: unknown study 'dytt'; did you mean 'dyt'?");
}

TEST_CASE("study file: a user's study goes with the results, and its claim has a verdict") {
  const test::TemporaryFolder folder;
  const std::string text =
      "question = \"whether dyt is worse\"\nmodels = [\"convnext_atto\"]\nnorms = [\"layer2d\", \"dyt\"]\n"
      "seeds = [0, 1, 2]\nbeside = \"lr\"\nclaim = \"dyt is worse than layer norm\"\nsource = \"me\"\nsetting = \"the "
      "same\"\n"
      "expect = [\"dyt < layer2d\"]\n";
  test::write_file(folder / "my_claim.toml", text);
  ComparisonOptions options{.recipe = {.dataset = "shapes", .image_size = 32}};
  options.seeds.clear();
  apply_study(study_named((folder / "my_claim.toml").string()), options);
  Comparison comparison = plan_comparison(options);
  CHECK(comparison.study == "my_claim");
  CHECK(comparison.study_text == text);
  for (Cell& cell : comparison.cells) {
    cell.state = CellState::finished;
    cell.accuracy = 0.8 + 0.001 * static_cast<double>(cell.seed) - (cell.norm == "dyt" ? 0.1 : 0) +
                    (cell.norm == "dyt" && cell.seed == 1 ? 0.001 : 0);
  }
  const Comparison read = comparison_from_json(to_json(comparison));
  CHECK(to_json(read) == to_json(comparison));
  CHECK(claim_text(read).starts_with(
      "The claim: dyt is worse than layer norm (me). Here: the same. The verdict: supported. dyt beside layer2d: "));
  CHECK(claim_text(read).find(" Accuracies in percent with lr 0.002: layer2d 80.1") != std::string::npos);
  std::string broken = to_json(comparison);
  broken.replace(broken.find("dyt < layer2d"), 5, "dyt ?");
  CHECK(error_of([&] { comparison_from_json(broken); }).find("expected two norms with >") != std::string::npos);
}
