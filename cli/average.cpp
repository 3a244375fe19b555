#include "base/error.h"
#include "base/range.h"
#include "cli/command.h"
#include "cli/options.h"
#include "data/safetensors.h"
#include "session/output.h"
#include "train/checkpoint.h"
#include "train/training_state.h"
#include "train/weights.h"

#include <system_error>

namespace norma::cli {

namespace {

constexpr Range<int64_t> kBest{1, 1'000'000};

struct State {
  std::vector<std::string> inputs;
  std::string output;
  int64_t best = 0;  ///< 0: average the given files
  train::WeightsOptions weights;
};

/// Whether a checkpoint's accuracy is that of averaged weights.
bool ranks_averages(const std::filesystem::path& file) {
  const train::Checkpoint head = train::load_checkpoint_metadata(file);
  return head.options.contains(train::kRecipeKey) && train::recipe_of(head).model_ema;
}

/// The files of the inputs, each once.
std::vector<std::filesystem::path> files_of(const State& state) {
  std::vector<std::filesystem::path> files;
  if (state.best > 0) {
    check(state.inputs.size() == 1 && train::is_folder("average", state.inputs.front()), "average",
          "--best: expected the folder of one run");
    for (const train::CheckpointFile& checkpoint : train::best_checkpoints(state.inputs.front(), state.best)) {
      train::say("{}: accuracy {:.2f} %, step {}\n", train::shown(checkpoint.path), 100 * *checkpoint.metric,
                 checkpoint.step);
      files.push_back(checkpoint.path);
    }
    return files;
  }
  for (const std::filesystem::path file : state.inputs) {
    check(!train::is_folder("average", file), "average",
          "'{}': expected a checkpoint, got a folder; --best N takes the best N of it", file.string());
    for (const std::filesystem::path& before : files) {
      std::error_code none;
      check(!std::filesystem::equivalent(file, before, none), "average",
            "expected each checkpoint once, got '{}' twice", file.string());
    }
    files.push_back(file);
  }
  return files;
}

int run(const State& state) {
  check(!state.inputs.empty(), "average", "expected checkpoints, got none");
  const std::filesystem::path output = state.output;
  train::check_new("average", "--output", output);
  const std::vector<std::filesystem::path> files = files_of(state);
  train::WeightsOptions weights = state.weights;
  weights.use_ema = weights.use_ema || (state.best > 0 && ranks_averages(files.front()));
  const train::Checkpoint average = train::average_checkpoints(files, weights);
  if (average.step < 0) {
    data::save_safetensors(output, average.model, average.options);
  } else {
    train::save_checkpoint(output, average);
  }
  train::say("the average of {}{} checkpoint{}: {}\n", weights.use_ema ? "the averaged weights (--model-ema) of " : "",
             files.size(), files.size() == 1 ? "" : "s", train::shown(state.output));
  return kSuccess;
}

}  // namespace

Command add_average(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "average");
  auto state = std::make_shared<State>();
  add_words(app, "CHECKPOINT", state->inputs, "checkpoints, or with --best the folder of a run");
  add_path(app, "--output", state->output, "the file to write", {.value = "FILE.safetensors", .required = true});
  add_value(
      app, "--best", kBest, state->best,
      "take the N with the highest test accuracy, of a run with --model-ema their averaged weights, whose accuracy it "
      "is",
      {.value = "N", .otherwise = "all that are given"});
  add_weights_options(app, state->weights);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
