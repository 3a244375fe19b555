#include "base/error.h"
#include "base/excerpt.h"
#include "base/quoting.h"
#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/options.h"
#include "cli/plugins.h"
#include "cli/processes.h"
#include "cli/run_files.h"
#include "core/autocast.h"
#include "lab/telemetry/recorder.h"
#include "lab/telemetry/telemetry.h"
#include "nn/plugin.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "session/resume.h"
#include "session/run_folder.h"
#include "session/run_log.h"
#include "session/trainer.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace norma::cli {

namespace {

struct State {
  RecipeOptions recipe{{}};
  RunOptions running;
  std::string output;
  std::string resume;
  int64_t batch_size_per_process = 0;  ///< 0: --batch-size holds
  bool dry_run = false;
  std::shared_ptr<parallel::ProcessGroup> group = parallel::make_single_group();

  /// `recipe` with the options of the command line.
  [[nodiscard]] train::Recipe applied_to(const train::Recipe& before) const {
    train::Recipe changed = recipe.applied_to(before);
    if (batch_size_per_process > 0) {
      const std::vector<std::string> typed = recipe.typed();
      check(std::ranges::find(typed, "batch-size") == typed.end(), "train",
            "batch-size-per-process: expected this or --batch-size, the images of all processes, got both");
      changed.batch_size = batch_size_per_process * group->size();
    }
    return changed;
  }
};

/// Throws Error if a folder has no checkpoint, whole or not; the text says how to begin the run again, if that is
/// possible.
void check_any_checkpoint(const std::filesystem::path& folder) {
  const train::RunFolder checkpoints = train::read_run_folder(folder);
  if (!checkpoints.whole.empty() || !checkpoints.broken.empty()) {
    return;
  }
  const std::filesystem::path options = folder / "args.toml";
  check(is_of_a_run(options), "train", "--resume: '{}' has no checkpoint of a run", folder.string());
  const bool begun = train::has_finished_epoch(folder);  // its logs stay
  fail("train", "--resume: the run in '{}' {}; begin it again with: {} train --config {}{}", folder.string(),
       begun ? "has no checkpoints any more" : "ended before it saved a checkpoint", program_name(),
       shell_word(options.string()), begun ? "" : " --output " + shell_word(folder.string()));
}

/// The newest checkpoint of a run's folder. Prints the ones that it passed over.
std::filesystem::path newest_in(const std::filesystem::path& folder) {
  std::vector<std::string> warnings;
  const std::filesystem::path file = train::newest_checkpoint(folder, warnings);
  for (const std::string& text : warnings) {
    train::warn("train", "{}; going on from {}", text, file.string());
  }
  return file;
}

/// Reads a checkpoint. If that fails, the error names another, whole one of its folder.
train::Checkpoint checkpoint_to_resume(const std::filesystem::path& file, const std::filesystem::path& folder) {
  try {
    train::Checkpoint checkpoint = train::load_checkpoint(file);
    check(!checkpoint.options.contains(train::kAveragedKey), "resume",
          "'{}' is an average of checkpoints, without an optimizer's state: it can be evaluated, not resumed",
          file.string());
    return checkpoint;
  } catch (const Error& error) {
    const train::RunFolder others = train::read_run_folder(folder);
    const bool broken = std::any_of(others.broken.begin(), others.broken.end(),
                                    [&](const auto& other) { return other.first.filename() == file.filename(); });
    if (others.whole.empty() || !broken) {
      throw;
    }
    const std::string whole = others.whole.front().path.string();
    throw Error(fmt::format("{}; '{}' is whole: --resume {}", error.what(), whole, shell_word(whole)));
  }
}

/// The precision of ops in a line: "amp_float16: conv2d, linear in float16; softmax in float32; others in …".
std::string policy_line(const train::Precision& precision) {
  std::string line = precision.name + ": ";
  for (const auto& [rule, dtype] :
       {std::pair(CastRule::lower, *precision.autocast), std::pair(CastRule::float32, DType::float32)}) {
    std::vector<std::string> ops;
    for (const std::string& op : CastPolicy::ops()) {
      if (precision.policy.rule(op) == rule) {
        ops.push_back(op);
      }
    }
    line += ops.empty() ? "" : fmt::format("{} in {}; ", fmt::join(ops, ", "), to_string(dtype));
  }
  return line + "others in the dtype of their first input";
}

/// The text of args.toml.
std::string arguments(const State& state, const train::Recipe& recipe) {
  return fmt::format("{}\n{}{}", kArgumentsHead, train::to_toml(recipe), state.running.config_text());
}

train::Trainer make_trainer(const State& state, const std::shared_ptr<lab::TelemetryRecorder>& recorder) {
  train::TrainerOptions options{.output = state.output,
                                .resumed = {},
                                .lock = {},
                                .keep = state.running.keep(),
                                .workers = static_cast<int>(state.running.workers),
                                .log_interval = state.running.log_interval,
                                .cuda_graph = train::graph_mode_from_string(state.running.cuda_graph),
                                .log_json = state.running.log_json,
                                .tensorboard = state.running.tensorboard,
                                .quiet = state.running.quiet,
                                .label = "",
                                .observer = recorder,
                                .group = state.group};
  const auto made = [&](const train::Recipe& recipe, auto&&... checkpoint) {
    if (state.dry_run || !state.group->is_first()) {
      options.output.clear();
    }
    return train::Trainer(recipe, options, checkpoint...);
  };
  if (state.resume.empty()) {
    if (options.output.empty() && state.group->is_first()) {
      options.output = new_run_folder("train");
    }
    const train::Recipe recipe = state.applied_to(state.recipe.defaults());
    options.arguments = arguments(state, recipe);
    return made(recipe);
  }
  const std::filesystem::path given = state.resume;
  const bool is_run = train::is_folder("train", given);
  const bool is_there = train::path_exists("train", given);
  const std::filesystem::path folder = resumed_folder(given);
  if (options.output.empty()) {
    options.output = folder;
  }
  std::error_code none;
  if (!state.dry_run && state.group->is_first() && is_there &&
      std::filesystem::equivalent(folder, options.output, none)) {
    // Locked before reading, since another process could add results that would be lost.
    options.lock = std::make_shared<train::FolderLock>("train", options.output);
  }
  if (is_run || (!is_there && train::is_folder("train", folder) && is_of_a_run(folder / "args.toml"))) {
    check_any_checkpoint(folder);
  }
  const std::filesystem::path file = is_run ? newest_in(folder) : given;
  const train::Checkpoint checkpoint = checkpoint_to_resume(file, folder);
  const train::Recipe before = train::recipe_of(checkpoint);
  check_norms_are_loaded("train", {before.norm, before.qk_norm}, plugins_of(checkpoint, file), "resume", given);
  const train::Recipe recipe = state.applied_to(before);
  train::check_same_run(before, recipe);
  train::check_data_dir("train", before, recipe);
  for (const std::string& line : other_lines(folder, train::to_toml(before))) {
    train::warn("train",
                "{}: '{}' is not what the checkpoint has, which holds where the command line says nothing else",
                (folder / "args.toml").string(), line);
  }
  for (const std::string& line : train::differences(before, recipe)) {
    train::say("changed on resuming: {}\n", line);
  }
  if (const auto versions = checkpoint.options.find(train::kVersionsKey);
      versions != checkpoint.options.end() && versions->second != train::versions_json()) {
    train::say("changed on resuming, so that bits may differ: versions {} → {}\n", excerpt(versions->second),
               train::versions_json());
  }
  const auto recorded = checkpoint.options.find(train::kPluginsKey);
  if (const std::string plugins = train::plugins_json(nn::loaded_plugins());
      recorded != checkpoint.options.end() && recorded->second != plugins) {
    train::say("changed on resuming, so that bits may differ: plug-ins {} → {}\n", excerpt(recorded->second, 1000),
               plugins);
  }
  options.resumed = file;
  options.arguments = arguments(state, recipe);
  return made(recipe, checkpoint);
}

int run_alone_or_together(State& state) {
  state.running.apply("train");
  const int64_t processes = state.group->size();
  check(processes == 1 || !state.dry_run, "train", "dry-run: expected one process, got {}", processes);
  const lab::DynamicsParts dynamics = lab::parse_dynamics("train", state.running.dynamics);
  const bool records = state.running.telemetry || dynamics.any();
  check(processes == 1 || !records, "train", "{}: expected one process, got {}",
        dynamics.any() ? "dynamics" : "telemetry", processes);
  const auto recorder = records ? std::make_shared<lab::TelemetryRecorder>(dynamics) : nullptr;
  train::Trainer trainer = make_trainer(state, recorder);
  for (const std::string& text : train::without_effect(trainer.recipe(), state.recipe.typed())) {
    train::warn("train", "{}", text);
  }
  if (!trainer.initial_weights().empty()) {
    train::say("{}\n", trainer.initial_weights());
  }
  if (!trainer.images_change().empty()) {
    train::say("changed on resuming: {}\n", trainer.images_change());
  }
  if (!trainer.rate_jump().empty()) {
    train::warn("train", "the learning rate jumps at step {}: {}, since the schedule is another, or has another end",
                trainer.step(), trainer.rate_jump());
  }
  if (state.dry_run) {
    print_precision_note(trainer.precision());
    train::say("{}", dry_run_text(trainer, train::to_toml(trainer.recipe())));
    return kSuccess;
  }
  std::optional<train::HeldFolder> folder;
  if (state.group->is_first()) {
    folder.emplace("train", trainer.checkpoint_file().parent_path());
  }
  const std::filesystem::path record = trainer.checkpoint_file().parent_path() / "telemetry.json";
  if (recorder) {
    train::check_replaceable("train", record, "a record of 'norma train'",
                             [](std::string_view beginning) { return beginning.starts_with("{\n \"losses\":"); });
  }
  const train::InterruptGuard guard;  // from here on; before, a signal may end the command, which only reads
  print_precision_note(trainer.precision());
  if (trainer.precision().autocast) {
    train::say("{}\n", policy_line(trainer.precision()));
  }
  const std::string file = trainer.checkpoint_file().string();
  train::say("{} parameters; step {} of {}; checkpoints go to {}\n", trainer.model()->parameter_count(), trainer.step(),
             trainer.total_steps(), file);
  const auto write_record = [&] {
    if (recorder && !recorder->result().losses.empty()) {  // a run that was already complete has none to add
      folder->check_in_place();
      train::write_text_file("train", record, lab::telemetry_text(recorder->result()));
      for (const std::string& text : lab::missing_dynamics(recorder->result(), dynamics)) {
        train::warn("train", "{}", text);
      }
    }
  };
  train::TrainResult result;
  try {
    result = trainer.run();
  } catch (const Error&) {
    write_record();  // the record up to the failure
    throw;
  }
  write_record();
  if (!result.finished) {
    train::say("interrupted after step {} of {}; go on with: {} train --resume {}{}\n", result.step, result.total_steps,
               program_name(), shell_word(file), state.running.plugin_words());
    return interrupted_code();
  }
  if (result.best) {
    train::say("best: test accuracy {:.2f} %{}, after step {} in epoch {}: {}\n", 100 * result.best->metric,
               result.ema_test.complete ? " with averaged weights (eval --use-ema)" : "", result.best->step,
               result.best->epoch, (trainer.checkpoint_file().parent_path() / train::kBestName).string());
  }
  const std::string averaged = result.ema_test.complete
                                   ? fmt::format("with averaged weights {:.2f} %, {:.4f}; ",
                                                 100 * result.ema_test.accuracy, result.ema_test.loss)
                                   : "";
  train::say("test accuracy {:.2f} %, test loss {:.4f}; {}{:.1f} img/s; {}\n", 100 * result.test.accuracy,
             result.test.loss, averaged, result.images_per_second, file);
  return kSuccess;
}

int run(State& state) {
  return run_in_processes("train", state.running, [&state](const std::shared_ptr<parallel::ProcessGroup>& group) {
    state.group = group;
    return run_alone_or_together(state);
  });
}

}  // namespace

Command add_train(CLI::App& program) {
  CLI::App& app = add_subcommand(
      program, "train", "Train one network; resumes",
      "Examples:\n"
      "  norma train --model resnet18 --norm group:8 --epochs 5\n"
      "  norma train --model convnext_atto --dataset shapes --images 12800 --output runs/mine\n"
      "  norma train --resume runs/mine\n"
      "  norma train --config runs/mine/args.toml --seed 1\n"
      "  norma train --procs 4 --batch-size 256 --sync-bn\n"
      "The output folder gets last.safetensors (after every epoch, at the end, and on Ctrl-C), model_best.safetensors\n"
      "(the weights with the best test accuracy), metrics.csv, summary.csv with timm's columns, and args.toml:\n"
      "the options, by which a resumed run goes on.");
  auto state = std::make_shared<State>();
  state->recipe.add_all(app);
  add_path(app, "--output", state->output, "folder for the checkpoint and the log")
      .type_name("FOLDER")
      .default_str("runs/train-<date>-<time>")
      .group("Running");
  add_path(app, "--resume", state->resume, "go on from this checkpoint, or the newest one in this folder")
      .type_name("PATH")
      .group("Running");
  add_switch(app, "--dry-run", state->dry_run,
             "print the plan, and the memory and time that it will take by a few steps, and write nothing")
      .group("Running");
  add_config(app).type_name("FILE.toml").group("Running");
  state->running.add_plugin(app);
  add_value(app, "--batch-size-per-process", train::ranges::kBatchSize, state->batch_size_per_process,
            "images of a batch in each process, in the place of --batch-size, which counts those of all")
      .type_name("N")
      .group("Running");
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
