#include "lab/report/repeat_command.h"

#include "json.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <string>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

TEST_CASE("repeat command: what is as by default is left out") {
  Comparison comparison = example();
  comparison.recipe = {};
  comparison.environment.threads = comparison.environment.cores;
  Cell cell;
  static_cast<Settings&>(cell) = settings_of(comparison.recipe);
  cell.model = "resnet18";
  cell.norm = "batch[eps=1e-3]";
  CHECK(repeat_command(comparison, cell) == "norma train --model resnet18 --norm 'batch[eps=1e-3]'");
  cell.batch_size = 4;
  cell.lr = 0.01;
  cell.format = MemoryFormat::contiguous;
  cell.seed = 7;
  comparison.environment.device = "cuda:0, NVIDIA H200";
  comparison.environment.threads = comparison.environment.cores + 1;
  comparison.environment.plugins = {{.file = "/p/a b.so", .sha256 = "0"}, {.file = "/p/c.so", .sha256 = "1"}};
  CHECK(repeat_command(comparison, cell) ==
        "norma train --model resnet18 --norm 'batch[eps=1e-3]' --batch-size 4 --no-channels-last --lr 0.01 --seed 7 "
        "--plugin '/p/a b.so' --plugin /p/c.so --device cuda --threads " +
            std::to_string(comparison.environment.threads));
}

TEST_CASE("repeat command: every field of a recipe changes it") {
  Comparison comparison = example();
  comparison.recipe = {};
  comparison.recipe.model = "resnet18";
  comparison.recipe.norm = "batch";
  const nlohmann::json fields = test::parse_json(train::to_json(comparison.recipe));
  Cell cell;
  static_cast<Settings&>(cell) = settings_of(comparison.recipe);
  const std::string before = repeat_command(comparison, cell);
  for (const auto& [name, value] : fields.items()) {
    CAPTURE(name);
    nlohmann::json changed = fields;
    if (name == "norm_policy" || name == "cast_policy") {
      continue;  // their files are named
    }
    if (name.starts_with("lr_base") || name.starts_with("model_ema") || name.ends_with("_nonfinite")) {
      continue;  // options of train only; the rate of a cell is the grid's
    }
    if (name == "patch_size" || name == "layer_scale") {
      changed["model"] = "convnext_atto";
      changed[name] = 4;
    } else if (name == "precision" || name == "cast_policy_file") {
      changed["precision"] = "amp_bfloat16";
      changed["cast_policy"] = "\"batch_norm\" = \"float32\"\n";
      changed["cast_policy_file"] = "p.toml";
    } else if (name == "cast") {
      changed["precision"] = "amp_float16";
      changed[name] = {"batch_norm=float32"};
    } else if (name == "norm_policy_file") {
      changed["norm_policy"] = "\"bn1\" = \"none\"\n";
      changed[name] = "p.toml";
    } else if (value.is_boolean()) {
      changed[name] = !value.get<bool>();
    } else if (value.is_string()) {
      changed[name] = name == "sched" ? "cosine" : name == "opt" ? "sgd" : name == "conv_layer" ? "std_conv" : "other";
    } else if (value.is_number_integer()) {
      changed[name] = 7;
    } else if (value.is_number() || value.is_null()) {
      changed[name] = 0.25;
    } else if (value.is_array()) {
      changed[name] = name == "decay_milestones" ? nlohmann::json({3, 7}) : nlohmann::json({0.25, 0.75});
    } else {
      FAIL("a field of a kind that is not known here");
    }
    Comparison other = comparison;
    other.recipe = train::recipe_from_json(data::json_text(changed));
    Cell its = cell;
    static_cast<Settings&>(its) = settings_of(other.recipe);
    CHECK(repeat_command(other, its) != before);
  }
}
