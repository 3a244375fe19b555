#include "session/trainer.h"
#include "small_runs.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::train;

namespace {

/// What a run leaves, none of it in memory that counts for the next one's peak.
struct Outcome {
  TrainResult result;
  std::vector<std::pair<std::string, std::vector<float>>> state;
};

Outcome outcome_of(const Recipe& recipe) {
  Trainer trainer(recipe, {.workers = 0, .evaluate = false, .quiet = true});
  Outcome outcome{.result = trainer.run(), .state = {}};
  const Checkpoint checkpoint = trainer.checkpoint();
  for (const nn::NamedTensors* part : {&checkpoint.model, &checkpoint.optimizer, &checkpoint.ema}) {
    for (const auto& [name, x] : *part) {
      outcome.state.emplace_back(name, x.to_vector<float>());
    }
  }
  return outcome;
}

/// Checks that a run with the option `less` leaves what a run without it leaves, in less memory.
void check_same_bits(Recipe recipe, bool Recipe::*less) {
  const Outcome plain = outcome_of(recipe);
  recipe.*less = true;
  const Outcome again = outcome_of(recipe);
  CHECK(plain.result.losses.size() > 2);
  CHECK(again.result.losses == plain.result.losses);
  REQUIRE(again.state.size() == plain.state.size());
  for (size_t i = 0; i < plain.state.size(); ++i) {
    CHECK_MESSAGE(again.state[i].second == plain.state[i].second, plain.state[i].first);
  }
  if (recipe.precision == "float32") {  // else so small a network needs the most memory in the optimizer
    CHECK(again.result.peak_bytes < plain.result.peak_bytes);
  }
}

}  // namespace

TEST_CASE("grad checkpointing: runs have the bits of runs without it, in less memory") {
  Recipe recipe = test::small_recipe("convnext_atto", {.batch_size = 4, .images = 24, .test_images = 2});
  recipe.drop_path = 0.3;
  recipe.image_size = 64;
  SUBCASE("float32 with averaged weights, and batch renorm, whose output depends on the running statistics") {
    recipe.norm = "batch_renorm[momentum=0.5]";
    recipe.model_ema = true;
  }
  SUBCASE("bfloat16 with gradients of two batches") {
    recipe.precision = "amp_bfloat16";
    recipe.grad_accum_steps = 2;
  }
  SUBCASE("float16 with a scaled loss") {
    recipe.precision = "amp_float16";
    recipe.norm = "batch";
  }
  SUBCASE("a frozen beginning") {
    recipe.freeze = {"stem", "stages.0", "stages.1.blocks.0"};
    recipe.norm = "batch";
  }
  SUBCASE("checkpoints") {
    check_same_bits(recipe, &Recipe::grad_checkpointing);
  }
  SUBCASE("norms") {
    check_same_bits(recipe, &Recipe::recompute_norms);
  }
}
