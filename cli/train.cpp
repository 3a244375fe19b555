#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/quoting.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "cli/run_files.h"
#include "core/autocast.h"
#include "lab/telemetry/recorder.h"
#include "lab/telemetry/telemetry.h"
#include "nn/plugin.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "session/progress.h"
#include "session/resume.h"
#include "session/run_folder.h"
#include "session/run_log.h"
#include "session/trainer.h"
#include "train/memory_use.h"
#include "train/recipe.h"
#include "train/recipe_option.h"
#include "train/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <system_error>

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
      check(!is_in(typed, "batch-size"), "train",
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
    const bool broken = std::ranges::any_of(
        others.broken, [&](const auto& other) { return other.first.filename() == file.filename(); });
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
    const auto has_rule = [&, rule = rule](const std::string& op) { return precision.policy.rule(op) == rule; };
    const std::vector<std::string> ops = filtered(CastPolicy::ops(), has_rule);
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
  const std::string versions = train::versions_json();
  if (const std::string of_run = checkpoint.option(train::kVersionsKey).value_or(versions); of_run != versions) {
    train::say("changed on resuming, so that bits may differ: versions {} → {}\n", excerpt(of_run), versions);
  }
  const std::string plugins = train::plugins_json(nn::loaded_plugins());
  if (const std::string of_run = checkpoint.option(train::kPluginsKey).value_or(plugins); of_run != plugins) {
    train::say("changed on resuming, so that bits may differ: plug-ins {} → {}\n", excerpt(of_run, 1000), plugins);
  }
  options.resumed = file;
  options.arguments = arguments(state, recipe);
  return made(recipe, checkpoint);
}

std::string indented(const std::string& lines) {
  std::istringstream in(lines);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    text += "  " + line + "\n";
  }
  return text;
}

std::string dry_line(const std::string& name, const std::string& text) {
  return fmt::format("{:<16}{}\n", name, text);
}

std::string rates_text(const train::Trainer& trainer) {
  int64_t peak = trainer.step();
  for (int64_t step = trainer.step(); step < trainer.total_steps(); ++step) {
    peak = trainer.lr(step) > trainer.lr(peak) ? step : peak;
  }
  return fmt::format("first {:.3g}, highest {:.3g} in step {}, last {:.3g}", trainer.lr(trainer.step()),
                     trainer.lr(peak), peak + 1, trainer.lr(trainer.total_steps() - 1));
}

/// `norma train --dry-run`: measures a few steps, and returns the plan and the cost of the run as text for people.
/// `recipe` is its recipe as lines of a file for --config.
std::string dry_run_text(train::Trainer& trainer, const std::string& recipe_lines) {
  const train::Recipe& recipe = trainer.recipe();
  std::string text = "recipe\n" + indented(recipe_lines);
  text += dry_line("network",
                   fmt::format("{}, {}: {} parameters", train::model_label(recipe.model, recipe),
                               train::norm_label(train::norm_of(recipe), recipe), trainer.model()->parameter_count()));
  const std::string begun = trainer.step() > 0 ? fmt::format("from step {} on, ", trainer.step() + 1) : "";
  text += dry_line("steps", fmt::format("{}{} of {} images, {} an epoch", begun, trainer.total_steps(),
                                        recipe.batch_size * recipe.grad_accum_steps, trainer.steps_per_epoch()));
  if (trainer.step() == trainer.total_steps()) {
    return text + "the run is complete\n";
  }
  text += dry_line("learning rate", rates_text(trainer));
  const train::DryRun run = trainer.dry_run();
  text += dry_line("memory", fmt::format("{}; counted in a step", to_string(run.memory)));
  text += dry_line("", fmt::format("at most {} of tensors at once; measured over {} steps",
                                   train::bytes_text(run.peak_bytes), run.first_steps + run.timed_steps));
  text += dry_line("time", fmt::format("{:.3g} s a step, {:.1f} img/s; the median of {} steps after {}",
                                       run.step_seconds, static_cast<double>(run.images_per_step) / run.step_seconds,
                                       run.timed_steps, run.first_steps));
  if (run.loading_seconds > 0) {
    const char* const waits = run.workers == 0                         ? ", which each step waits for"
                              : run.loading_seconds < run.step_seconds ? ""
                                                                       : ", which is what the steps wait for";
    text += dry_line("", fmt::format("loading gives {:.1f} img/s with {} worker{}{}",
                                     static_cast<double>(run.images_per_step) / run.loading_seconds, run.workers,
                                     run.workers == 1 ? "" : "s", waits));
  }
  text += dry_line(
      "", fmt::format("{} for {} steps, {} for {} evaluation{}: about {} in all",
                      train::format_duration(run.step_seconds * static_cast<double>(run.steps_left)), run.steps_left,
                      train::format_duration(run.evaluation_seconds * static_cast<double>(run.evaluations)),
                      run.evaluations, run.evaluations == 1 ? "" : "s", train::format_duration(run.seconds)));
  return text + "nothing was written\n";
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
  const train::InterruptGuard guard;  // from here on; before, a signal ends the command, which has written no results
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
  CLI::App& app = add_subcommand(program, "train");
  auto state = std::make_shared<State>();
  state->recipe.add_all(app);
  add_path(app, "--output", state->output, "folder for the checkpoint and the log",
           {.value = "FOLDER", .otherwise = "runs/train-<date>-<time>", .heading = "Running"});
  add_path(app, "--resume", state->resume, "go on from this checkpoint, or the newest one in this folder",
           {.value = "PATH", .heading = "Running"});
  add_switch(app, "--dry-run", state->dry_run,
             "print the plan, and the memory and time that it will take by a few steps, and write nothing",
             {.heading = "Running"});
  add_config(app, {.value = "FILE.toml", .heading = "Running"});
  add_value(app, "--batch-size-per-process", train::ranges::kBatchSize, state->batch_size_per_process,
            "images of a batch in each process, in the place of --batch-size, which counts those of all",
            {.value = "N", .heading = "Running"});
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
