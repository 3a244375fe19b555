#include "session/run_folder.h"

#include "base/error.h"
#include "data/atomic_file.h"
#include "data/safetensors.h"
#include "nn/cast_policy.h"
#include "session/trainer.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>
#include <set>
#include <system_error>

namespace norma::train {

namespace {

/// True for the names in run_folder.h.
bool is_checkpoint_name(const std::string& name) {
  static const std::regex names(R"((last|model_best|checkpoint-\d+|recovery-\d+-\d+)\.safetensors)");
  return std::regex_match(name, names);
}

bool is_last(const CheckpointFile& checkpoint) {
  return checkpoint.path.filename() == kLastName;
}

bool comes_first(const CheckpointFile& a, const CheckpointFile& b) {
  if (a.step != b.step) {
    return a.step > b.step;
  }
  return is_last(a) != is_last(b) ? is_last(a) : a.path < b.path;
}

/// Of equal ones the earlier is better.
bool is_better(const CheckpointFile& a, const CheckpointFile& b) {
  return a.metric != b.metric ? a.metric > b.metric : a.step < b.step;
}

/// True iff a file that is no checkpoint can be opened and is half-written. False: its state is unknown (permissions, a
/// failing disk), or it is whole and of another version or kind.
bool is_damaged(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::array<char, 4096> beginning{};
  if (!in.is_open() || in.read(beginning.data(), beginning.size()).bad()) {
    return false;
  }
  try {
    data::load_safetensors_metadata(file);
    return false;
  } catch (const Error&) {
    return true;
  }
}

/// The first line of a text, without its end.
std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

/// Removes the checkpoints of a folder whose names begin with `prefix`, except the first `count` in an order. One that
/// cannot be read stays.
void keep_first(const std::filesystem::path& folder, std::string_view prefix, int64_t count,
                const std::function<bool(const CheckpointFile&, const CheckpointFile&)>& before) {
  std::vector<CheckpointFile> files;
  for (const CheckpointFile& checkpoint : read_run_folder(folder).whole) {
    if (checkpoint.path.filename().string().starts_with(prefix)) {
      files.push_back(checkpoint);
    }
  }
  std::ranges::sort(files, before);
  for (size_t i = static_cast<size_t>(count); i < files.size(); ++i) {
    std::error_code stays;
    std::filesystem::remove(files[i].path, stays);
  }
}

}  // namespace

RunFolder read_run_folder(const std::filesystem::path& folder) {
  RunFolder result;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_checkpoint_name(entry->path().filename().string())) {
      continue;
    }
    try {
      const Checkpoint head = load_checkpoint_metadata(entry->path());
      result.whole.push_back({.path = entry->path(), .step = head.step, .metric = head.metric});
    } catch (const Error& what) {
      result.broken.emplace(entry->path(), what.what());
    }
  }
  std::ranges::sort(result.whole, comes_first);
  return result;
}

std::filesystem::path newest_checkpoint(const std::filesystem::path& folder, std::vector<std::string>& warnings) {
  const RunFolder checkpoints = read_run_folder(folder);
  if (checkpoints.whole.empty()) {
    return folder / kLastName;
  }
  for (const auto& [file, text] : checkpoints.broken) {
    if (!is_damaged(file)) {  // it may be the newest: going on from an older one would lose its work
      throw Error(
          fmt::format("{}; to go on from another one all the same, resume that by its name ('{}' is at step {})", text,
                      checkpoints.whole.front().path.string(), checkpoints.whole.front().step));
    }
    warnings.push_back(text);
  }
  return checkpoints.whole.front().path;
}

std::vector<CheckpointFile> best_checkpoints(const std::filesystem::path& folder, int64_t count) {
  std::vector<CheckpointFile> evaluated;
  std::set<int64_t> steps;
  for (const CheckpointFile& checkpoint : read_run_folder(folder).whole) {
    if (checkpoint.metric && steps.insert(checkpoint.step).second) {
      evaluated.push_back(checkpoint);
    }
  }
  check(static_cast<int64_t>(evaluated.size()) >= count, "average",
        "--best: expected at least {} evaluated checkpoints in '{}', got {} (norma train --checkpoint-hist N keeps "
        "the best)",
        count, folder.string(), evaluated.size());
  std::ranges::sort(evaluated, is_better);
  evaluated.resize(static_cast<size_t>(count));
  return evaluated;
}

void check_checkpoints_are_kept(const std::filesystem::path& folder, const std::filesystem::path& resumed,
                                int64_t step) {
  constexpr const char* kOp = "train";
  std::error_code none;
  const std::filesystem::path from = resumed.has_parent_path() ? resumed.parent_path() : ".";
  const bool same_folder = !resumed.empty() && std::filesystem::equivalent(from, folder, none);
  const RunFolder there = read_run_folder(folder);
  if (same_folder) {
    if (!there.whole.empty() && there.whole.front().step > step) {
      fail(kOp,
           "'{}' is at step {}, and '{}', at step {}, would be written over: resume that, or choose another output "
           "folder",
           resumed.string(), step, there.whole.front().path.string(), there.whole.front().step);
    }
    return;
  }
  if (!there.whole.empty() || !there.broken.empty()) {
    fail(kOp, "'{}' is the checkpoint of another run: resume it, or choose another output folder",
         (there.whole.empty() ? there.broken.begin()->first : there.whole.front().path).string());
  }
}

void remove_old_recovery(const std::filesystem::path& folder, const KeepOptions& options) {
  keep_first(folder, kRecoveryPrefix, options.history,
             [](const CheckpointFile& a, const CheckpointFile& b) { return a.step > b.step; });
}

void save_recovery(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                   int64_t step_in_epoch) {
  save_checkpoint(folder / fmt::format("{}{}-{}.safetensors", kRecoveryPrefix, checkpoint.epoch, step_in_epoch),
                  checkpoint);
  remove_old_recovery(folder, options);
}

void save_evaluated(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                    int64_t epoch) {
  const std::filesystem::path last = folder / kLastName;
  save_checkpoint(last, checkpoint);
  if (checkpoint.best && checkpoint.best->step == checkpoint.step) {
    data::link_file("checkpoint", last, folder / kBestName);
  }
  if (options.history > 1) {
    data::link_file("checkpoint", last, folder / fmt::format("{}{}.safetensors", kEpochPrefix, epoch));
    keep_first(folder, kEpochPrefix, options.history, is_better);
  }
}

RunOutput::RunOutput(TrainingState& run, const TrainerOptions& options) : run_(run), options_(options) {
  if (options.output.empty()) {
    return;
  }
  lock_ = options.lock ? options.lock : std::make_shared<FolderLock>("train", options.output);
  check_checkpoints_are_kept(options.output, options.resumed, run.step);
  if (run.best && !path_exists("train", options.output / kBestName)) {
    run.best.reset();  // its weights lie elsewhere
  }
  if (options.keep.recovery_interval > 0) {
    remove_old_recovery(options.output, options.keep);
  }
}

void RunOutput::enter(std::string_view stage) const {
  if (options_.before_stage) {
    options_.before_stage(stage);
  }
  if (is_there() && stage != "step") {
    lock_->check_in_place();
  }
}

void RunOutput::write_settings() const {
  const auto write = [this](const char* name, std::string_view kind, const std::string& text) {
    const std::filesystem::path file = options_.output / name;
    check_replaceable("train", file, kind,
                      [&](std::string_view beginning) { return first_line(beginning) == first_line(text); });
    lock_->write_text(name, text);
  };
  if (is_there() && run_.precision.autocast) {
    write("cast_policy.toml", "the cast policy of a training run",
          "# Cast policy of a run of 'norma train'\n" + nn::to_text(run_.precision.policy));
  }
  if (is_there() && !options_.arguments.empty()) {
    write("args.toml", "the options of a training run", options_.arguments);
  }
}

bool RunOutput::has_last() const {
  try {
    return !is_there() || load_checkpoint_metadata(options_.output / kLastName).step == run_.step;
  } catch (const Error&) {
    return false;
  }
}

void RunOutput::write(const std::function<void(const Checkpoint&)>& save) const {
  if (is_there()) {
    const Checkpoint now = run_.checkpoint();
    check_finite("train", "the network", now.model);
    enter("save");  // checks the folder right before the file is written
    save(now);
  }
}

void RunOutput::save() {
  if (saved_step_ != run_.step) {
    write([this](const Checkpoint& now) {
      save_checkpoint(options_.output / kLastName, now);
      saved_step_ = run_.step;
    });
  }
}

void RunOutput::save_for_recovery() const {
  write([this](const Checkpoint& now) {
    save_recovery(options_.output, options_.keep, now, run_.step % run_.steps_per_epoch());
  });
}

void RunOutput::keep_evaluated(double accuracy) const {
  if (!options_.keep.best) {
    return;
  }
  const BestEvaluation now = {.metric = accuracy,
                              .step = run_.step,
                              .epoch = (run_.step + run_.steps_per_epoch() - 1) / run_.steps_per_epoch()};
  run_.evaluated = now;
  // One of the same step: an earlier run was killed here.
  if (!run_.best || run_.best->step == run_.step || now.metric > run_.best->metric) {
    run_.best = now;
  }
  write([&](const Checkpoint& checkpoint) { save_evaluated(options_.output, options_.keep, checkpoint, now.epoch); });
}

}  // namespace norma::train
