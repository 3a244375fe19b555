#include "lab/compare/comparison.h"
#include "lab/report/decisions.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

using namespace norma;
using namespace norma::lab;
using test::error_of;

namespace {

ComparisonOptions on_shapes() {
  ComparisonOptions options;
  options.recipe.dataset = "shapes";
  options.recipe.images = 256;
  options.timing_rounds = 0;
  return options;
}

}  // namespace

TEST_CASE("study: each is a grid in which what it asks for varies") {
  for (const Study& study : studies()) {
    CAPTURE(study.name);
    ComparisonOptions options = on_shapes();
    apply_study(study, options);
    const Comparison comparison = plan_comparison(options);
    std::set<std::string> models;
    std::set<std::string> precisions;
    std::set<int64_t> batches;
    std::set<double> lrs;
    std::set<std::string> norms;
    for (const Cell& cell : comparison.cells) {
      models.insert(cell.model);
      precisions.insert(cell.precision);
      batches.insert(cell.batch_size);
      lrs.insert(cell.lr);
      norms.insert(cell.norm);
    }
    const bool asks = !study.claim;
    const bool one_batch_norm = study.name == "weight-decay" || study.name == "ema";
    const bool one_norm = one_batch_norm || study.name == "qk-norm" || study.name == "placement";
    const bool of_batch = one_batch_norm || study.name == "finetune" || study.name == "batch-vit";
    CHECK(norms.contains("batch") == (asks || of_batch));  // the reference; a claim names its own
    CHECK(norms.size() >= (asks ? 3U : one_norm ? 1U : 2U));
    CHECK((batches.size() > 1) == (study.name == "batch-size"));
    CHECK((lrs.size() > 1) == (study.name == "batch-size" || study.name == "lr" || study.name == "weight-decay" ||
                               study.name == "qk-norm"));
    CHECK((precisions.size() > 1) == (study.name == "precision"));
    const std::set<std::string> in_two = {"data-size", "derf", "dyt", "optimizer"};  // claims about transformers
    CHECK((models == std::set<std::string>{"convnext_atto", "vit_tiny"}) == in_two.contains(study.name));
    CHECK((models.size() > 1) == (study.name == "depth" || in_two.contains(study.name)));
    CHECK_FALSE(study.question.empty());
    CHECK(study.text.empty());
  }
}

TEST_CASE("study: the learning rate follows the batch size by its root, or in proportion") {
  ComparisonOptions options = on_shapes();
  apply_study(study_of("batch-size"), options);
  options.norms = {"batch"};
  const auto rates = [&] {
    std::map<int64_t, double> lrs;
    for (const Cell& cell : plan_comparison(options).cells) {
      lrs[cell.batch_size] = cell.lr;
    }
    return lrs;
  };
  CHECK(rates() == std::map<int64_t, double>{{2, 2.5e-4}, {4, 3.536e-4}, {8, 5e-4}, {16, 7.071e-4}, {32, 1e-3}});
  options.lr_scaling = LrScaling::linear;
  CHECK(rates()[2] == 3.125e-5);
  options.lr_scaling = LrScaling::none;
  CHECK(rates()[2] == 2e-3);
  CHECK(lr_scaling_from_string("linear") == LrScaling::linear);
  CHECK(error_of([] { lr_scaling_from_string("lineal"); }) ==
        "compare: lr-scaling: unknown name 'lineal'; did you mean 'linear'?");
}

TEST_CASE("study: scaled learning rates that are the same, or none, are refused") {
  ComparisonOptions options = on_shapes();
  options.models = {"resnet18"};
  options.norms = {"batch"};
  options.batch_sizes = {2};
  options.lr_scaling = LrScaling::sqrt;
  options.lrs = {0.00100001, 0.00100002};
  CHECK(error_of([&] { plan_comparison(options); }) ==
        "compare: lrs: expected each once, but two are 0.000125 for a batch size of 2");
  options.lrs = {1e-307};
  options.lr_scaling = LrScaling::linear;
  CHECK(plan_comparison(options).cells.front().lr < 1e-308);  // too small for a rounded one, and still a number
}

TEST_CASE("study: one with a claim has several seeds, without which nothing is decided") {
  for (const Study& study : studies()) {
    CAPTURE(study.name);
    ComparisonOptions options = on_shapes();
    options.seeds.clear();
    apply_study(study, options);
    CHECK(options.seeds.size() == (!study.claim ? 1U : 3U));
    options.seeds = {7};
    apply_study(study, options);
    CHECK(options.seeds == std::vector<uint64_t>{7});
    CHECK(study.budget_test_images >= 2000);
  }
}

TEST_CASE("study: what is given stays, and an unknown one has a text") {
  ComparisonOptions options = on_shapes();
  options.models = {"convnext_atto"};
  options.batch_sizes = {4, 16};
  apply_study(study_of("batch-size"), options);
  CHECK(options.models == std::vector<std::string>{"convnext_atto"});
  CHECK(options.batch_sizes == std::vector<int64_t>{4, 16});
  CHECK(options.norms == study_of("batch-size").norms);
  CHECK(error_of([] { study_of("batchsize"); }) == "study: unknown study 'batchsize'; did you mean 'batch-size'?");
}
