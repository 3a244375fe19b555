#include "cli/dry_run.h"

#include "models/registry.h"
#include "session/progress.h"
#include "train/memory_use.h"
#include "train/recipe.h"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>

namespace norma::cli {

namespace {

std::string indented(const std::string& lines) {
  std::istringstream in(lines);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    text += "  " + line + "\n";
  }
  return text;
}

std::string line(const std::string& name, const std::string& text) {
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

}  // namespace

std::string dry_run_text(train::Trainer& trainer, const std::string& recipe_lines) {
  const train::Recipe& recipe = trainer.recipe();
  const std::string norm = recipe.norm.empty() ? models::own_norm(recipe.model) : recipe.norm;
  std::string text = "recipe\n" + indented(recipe_lines);
  text += line("network", fmt::format("{}, {}: {} parameters", train::model_label(recipe.model, recipe),
                                      train::norm_label(norm, recipe), trainer.model()->parameter_count()));
  const std::string begun = trainer.step() > 0 ? fmt::format("from step {} on, ", trainer.step() + 1) : "";
  text += line("steps", fmt::format("{}{} of {} images, {} an epoch", begun, trainer.total_steps(),
                                    recipe.batch_size * recipe.grad_accum_steps, trainer.steps_per_epoch()));
  if (trainer.step() == trainer.total_steps()) {
    return text + "the run is complete\n";
  }
  text += line("learning rate", rates_text(trainer));
  const train::DryRun run = trainer.dry_run();
  text += line("memory", fmt::format("{}; counted in a step", to_string(run.memory)));
  text += line("", fmt::format("at most {} of tensors at once; measured over {} steps",
                               train::bytes_text(run.peak_bytes), run.first_steps + run.timed_steps));
  text += line("time", fmt::format("{:.3g} s a step, {:.1f} img/s; the median of {} steps after {}", run.step_seconds,
                                   static_cast<double>(run.images_per_step) / run.step_seconds, run.timed_steps,
                                   run.first_steps));
  if (run.loading_seconds > 0) {
    const char* const waits = run.workers == 0                         ? ", which each step waits for"
                              : run.loading_seconds < run.step_seconds ? ""
                                                                       : ", which is what the steps wait for";
    text += line("", fmt::format("loading gives {:.1f} img/s with {} worker{}{}",
                                 static_cast<double>(run.images_per_step) / run.loading_seconds, run.workers,
                                 run.workers == 1 ? "" : "s", waits));
  }
  text += line(
      "", fmt::format("{} for {} steps, {} for {} evaluation{}: about {} in all",
                      train::format_duration(run.step_seconds * static_cast<double>(run.steps_left)), run.steps_left,
                      train::format_duration(run.evaluation_seconds * static_cast<double>(run.evaluations)),
                      run.evaluations, run.evaluations == 1 ? "" : "s", train::format_duration(run.seconds)));
  return text + "nothing was written\n";
}

}  // namespace norma::cli
