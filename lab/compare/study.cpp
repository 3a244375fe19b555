#include "lab/compare/study.h"

#include "core/error.h"
#include "core/nearest_name.h"
#include "train/precision.h"

#include <algorithm>

namespace norma::lab {

namespace {

template <class T>
void fill(std::vector<T>& values, const std::vector<T>& of_study) {
  if (values.empty()) {
    values = of_study;
  }
}

}  // namespace

const std::vector<Study>& studies() {
  // The studies are made for ten minutes on two cores (--budget 10m). They have batches of 32 where larger ones would
  // leave few steps. Those with a claim have several seeds and many test images, since they tell differences of a few
  // tenths of a point.
  static const std::vector<uint64_t> kSeeds = {0, 1, 2};
  constexpr int64_t kTestImages = 4000;
  static const std::vector<Study> all = {
      {.name = "batch-size",
       .question = "which norm keeps its accuracy when batches are small",
       .models = {"resnet18"},
       .norms = {"batch", "group", "layer2d"},
       .batch_sizes = {2, 4, 8, 16, 32},
       .lr_scaling = LrScaling::sqrt},
      {.name = "precision",
       .question = "what a precision costs in accuracy, and saves in time and memory",
       .models = {"resnet18"},
       .norms = {"batch", "layer2d", "group"},
       .batch_sizes = {32},
       .precisions = train::precision_names(),
       .lr_scaling = LrScaling::sqrt},
      {.name = "depth",
       .question = "which norm trains deep networks",
       .models = {"resnet18", "resnet34", "resnet50", "resnet101"},
       .norms = {"batch", "group", "layer2d"},
       .batch_sizes = {32},
       .lr_scaling = LrScaling::sqrt},
      {.name = "lr",
       .question = "which norm forgives a learning rate that is too high or too low",
       .models = {"resnet18"},
       .norms = {"batch", "group", "layer2d", "none"},
       .lrs = {1.25e-4, 5e-4, 2e-3, 8e-3, 3.2e-2}},
      // Those below have a claim (lab/report/claim.h), whose norms and values are among these.
      {.name = "data-size",
       .question = "whether dyt helps with few training images and hurts with many",
       .models = {"convnext_atto"},
       .norms = {"layer2d", "dyt"},
       .options = {{"train-images", {"1000", "4000", "16000"}}},
       .seeds = kSeeds},  // with a budget of fewer test images, which are seen after each of many short epochs
      {.name = "optimizer",
       .question = "whether derf suffers under Muon",
       .models = {"convnext_atto"},
       .norms = {"rms2d", "dyt", "derf"},
       .options = {{"opt", {"adamw", "muon"}}},
       .seeds = kSeeds,
       .budget_test_images = kTestImages},
      {.name = "dyt",
       .question = "whether dyt is as accurate as layer norm, and at which alpha",
       .models = {"convnext_atto"},
       .norms = {"layer2d", "dyt", "dyt[alpha=0.2]", "dyt[alpha=1]"},
       .seeds = kSeeds,
       .budget_test_images = kTestImages},
      {.name = "derf",
       .question = "whether derf is more accurate than layer norm and dyt",
       .models = {"convnext_atto"},
       .norms = {"layer2d", "dyt", "derf"},
       .seeds = kSeeds,
       .budget_test_images = kTestImages},
      {.name = "weight-decay",
       .question = "whether weight decay behind norms is only a learning rate",
       .models = {"resnet18"},
       .norms = {"batch"},
       .batch_sizes = {32},    // many steps, so that weights come near the balance that the claim speaks of
       .lrs = {0.0125, 0.05},  // with both the network trains well; at 0.2 it does not
       .options = {{"opt", {"sgd"}}, {"weight-decay", {"0.02", "0.08"}}},
       .seeds = kSeeds,
       .budget_test_images = kTestImages},
      {.name = "ema",
       .question = "whether averaged weights need batch norm statistics of their own",
       .models = {"resnet18"},
       .norms = {"batch"},
       .batch_sizes = {32},  // many steps to average
       .options = {{"weights", {"last", "ema", "ema-recalibrated"}}},
       .seeds = kSeeds,
       .budget_test_images = kTestImages},
      {.name = "finetune",
       .question = "whether batch norm should keep its statistics in fine-tuning, and where other norms should start",
       .models = {"resnet18"},
       .norms = {"batch", "group:32"},
       .batch_sizes = {32},
       .lrs = {5e-4},  // a fourth of what the network was trained with
       .options = {{"train-images", {"2000"}}, {kStart, {kScratch, "keep", "frozen", "fold", "calibrate"}}},
       .classes = {0, 2, 4, 6, 8},
       .seeds = kSeeds},
  };
  return all;
}

const Study& study_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Study& study : studies()) {
    if (study.name == name) {
      return study;
    }
    names.push_back(study.name);
  }
  fail("study", "{}", unknown_name("study", std::string(name), names));
}

void apply_study(const Study& study, ComparisonOptions& options) {
  fill(options.models, study.models);
  fill(options.norms, study.norms);
  fill(options.seeds, study.seeds);
  fill(options.batch_sizes, study.batch_sizes);
  fill(options.lrs, study.lrs);
  fill(options.precisions, study.precisions);
  if (options.recipe.initial_checkpoint.empty()) {
    fill(options.recipe.classes, study.classes);
  }
  for (const auto& [name, words] : study.options) {
    fill(options.options[name], words);
  }
  options.lr_scaling = study.lr_scaling;
  options.study = study.name;
}

}  // namespace norma::lab
