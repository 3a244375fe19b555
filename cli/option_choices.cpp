#include "cli/option_table.h"
#include "lab/judge/audit.h"
#include "lab/judge/cases.h"
#include "lab/studies/study.h"
#include "lab/telemetry/dynamics_parts.h"
#include "models/state_dict_names.h"
#include "nn/norm/factory.h"
#include "ops/conv/conv.h"
#include "train/recipe_option.h"
#include "train/step_graph.h"

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

Names dynamics_choices() {
  Names names = lab::dynamics_names();
  names.emplace_back("all");
  return names;
}

/// Options outside the recipe that mean the same in every command.
const std::map<std::string, Names>& everywhere() {
  static const std::map<std::string, Names> table = {
      {"study", study_names()},
      {"dynamics", dynamics_choices()},
      {"from", models::dialect_names()},  // of convert
      {"to", models::dialect_names()},
      {"case", lab::judge::case_names()},
      {"like", nn::norm_names()},  // of check-norm
      {"format", {"contiguous", "channels_last"}},
      {"library", {"timm", "torchvision"}},  // of export
      {"dtype", {"float32", "float64", "bfloat16", "float16"}},
      {"conv", conv2d_modes()},
      {"cuda-graph", train::graph_mode_names()},
      {"device", {"cpu", "cuda", "cuda-emulated"}},
      {"lr-scaling", {"none", "sqrt", "linear"}},
      {"statistics", {"stable", "welford", "two_pass", "compensated", "sum_of_squares"}},
      {"shapes", {"images", "rows", "volume"}},
      {"bench", {"train", "infer", "both"}},
      {"results-format", {"csv", "json"}},
      {"SHELL", {"bash", "zsh", "fish"}},
  };
  return table;
}

}  // namespace

Names option_choices(const std::string& command, const std::string& name) {
  if (name == "norm" && command == "audit") {
    return lab::judge::norm_names();
  }
  if (name == "format" && command == "export") {
    return {"onnx", "torch"};
  }
  if (const train::RecipeOption* option = train::find_recipe_option(name); option != nullptr) {
    return option->names != nullptr ? option->names() : Names();
  }
  const auto found = everywhere().find(name);
  return found == everywhere().end() ? Names() : found->second;
}

}  // namespace norma::cli
