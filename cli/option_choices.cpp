#include "cli/option_table.h"
#include "data/augment/erase.h"
#include "data/dataset.h"
#include "lab/audit/audit.h"
#include "lab/audit/cases.h"
#include "lab/compare/study.h"
#include "models/registry.h"
#include "models/state_dict_names.h"
#include "nn/conv_factory.h"
#include "nn/norm/factory.h"
#include "train/augmentation.h"
#include "train/precision.h"
#include "train/recipe.h"

#include <functional>
#include <map>

namespace norma::cli {

namespace {

using Names = std::vector<std::string>;

Names study_names() {
  Names names;
  for (const lab::Study& study : lab::studies()) {
    names.emplace_back(study.name);
  }
  return names;
}

/// Where an option means the same in every command.
const std::map<std::string, std::function<Names()>>& everywhere() {
  static const Names formats{"contiguous", "channels_last"};
  static const Names dtypes{"float32", "float64", "bfloat16", "float16"};
  static const std::map<std::string, std::function<Names()>> table = {
      {"model", models::model_names},
      {"norm", nn::norm_names},
      {"conv-layer", nn::conv_layer_names},
      {"dataset", data::dataset_names},
      {"opt", train::optimizer_names},
      {"sched", train::schedule_names},
      {"clip-mode", train::clip_mode_names},
      {"precision", train::precision_names},
      {"remode", data::erasing_mode_names},
      {"interpolation", train::interpolation_names},
      {"train-interpolation", train::train_interpolation_names},
      {"study", study_names},
      {"from", models::dialect_names},  // of convert
      {"to", models::dialect_names},
      {"case", lab::audit::case_names},
      {"format", [] { return formats; }},
      {"dtype", [] { return dtypes; }},
      {"device",
       [] {
         return Names{"cpu", "cuda", "cuda-emulated"};
       }},
      {"lr-base-scale",
       [] {
         return Names{"linear", "sqrt"};
       }},
      {"lr-scaling",
       [] {
         return Names{"none", "sqrt", "linear"};
       }},
      {"aa",
       [] {
         return Names{"ta_wide", "rand-m9-mstd0.5-inc1"};
       }},
      {"statistics",
       [] {
         return Names{"stable", "welford", "two_pass", "compensated", "sum_of_squares"};
       }},
      {"shapes",
       [] {
         return Names{"images", "rows", "volume"};
       }},
      {"bench",
       [] {
         return Names{"train", "infer", "both"};
       }},
      {"results-format",
       [] {
         return Names{"csv", "json"};
       }},
      {"SHELL",
       [] {
         return Names{"bash", "zsh", "fish"};
       }},
  };
  return table;
}

}  // namespace

Names option_choices(const std::string& command, const std::string& name) {
  if (name == "norm" && command == "audit") {
    return lab::audit::audited_names();
  }
  const auto found = everywhere().find(name);
  return found == everywhere().end() ? Names() : found->second();
}

}  // namespace norma::cli
