#include "lab/compare/comparison.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "core/allocator.h"
#include "data/json.h"
#include "lab/bench/spread.h"
#include "lab/compare/timing.h"
#include "lab/telemetry/recorder.h"
#include "lab/telemetry/summary.h"
#include "nn/plugin.h"
#include "session/environment.h"
#include "session/output.h"
#include "session/progress.h"
#include "session/trainer.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/processes.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

namespace norma::lab {

namespace {

using bench::Clock;
using bench::seconds_since;

/// The key in Checkpoint::options for Progress.
constexpr const char* kProgressKey = "comparison";

/// What the result of a cell has so far, over all starts.
class Progress : public train::StepObserver {
 public:
  /// `alone`: this process makes whole steps, which the recorder may look into.
  Progress(std::shared_ptr<TelemetryRecorder> recorder, bool alone) : recorder_(std::move(recorder)), alone_(alone) {}

  void start(const train::ObservedRun& run) override {
    if (recorder_) {
      recorder_->start(run);
    }
  }
  [[nodiscard]] bool looks_into_steps() const override { return recorder_ != nullptr && alone_; }
  std::unique_ptr<train::ObservedStep> begin_step(int64_t step) override {
    return looks_into_steps() ? recorder_->begin_step(step) : nullptr;
  }
  void end_step(int64_t step, double loss, double seconds) override {
    left_out_step(step, loss, seconds);
    if (recorder_) {
      recorder_->end_step(step, loss, seconds);
    }
  }
  void left_out_step(int64_t /*step*/, double loss, double seconds) override {
    losses_.push_back(loss);
    step_seconds_.push_back(seconds);
  }
  void evaluated(int64_t step, const train::Evaluation& test) override {
    if (recorder_) {
      recorder_->evaluated(step, test);
    }
  }

  /// All of it.
  std::string text() {
    resident_.sample();
    nlohmann::ordered_json json = {
        {"seconds", before_.seconds + seconds_since(start_)},
        {"losses", losses_},
        {"step_seconds", step_seconds_},
        {"peak_bytes", std::max(before_.peak_bytes, allocator(default_device()).statistics().peak_allocated)},
        {"peak_resident", std::max(before_.peak_resident, resident_.bytes())}};
    if (recorder_) {
      json["telemetry"] = recorder_->state();
    }
    return data::json_text(json);
  }

  /// Goes on from text(). Throws Error for another text, and one without the record that is wanted.
  void resume(const std::string& text) {
    const std::string where = "checkpoint";
    const nlohmann::json json = data::parse_json(where, kProgressKey, text);
    before_.seconds = data::json_field<double>(where, json, "seconds");
    before_.peak_bytes = data::json_field<int64_t>(where, json, "peak_bytes");
    before_.peak_resident = data::json_field<int64_t>(where, json, "peak_resident");
    losses_ = data::json_numbers(where, json, "losses");
    step_seconds_ = data::json_field<std::vector<double>>(where, json, "step_seconds");
    before_.losses = losses_;
    if (recorder_) {
      check(json.contains("telemetry"), where, "telemetry: missing");
      recorder_->resume(json["telemetry"], where + ": telemetry");
    }
  }

  /// Puts a result of this start of `trainer` after what was before.
  void complete(train::TrainResult& result, const train::Trainer& trainer) const {
    if (before_.losses.empty()) {
      return;
    }
    result.losses.insert(result.losses.begin(), before_.losses.begin(), before_.losses.end());
    result.seconds += before_.seconds;
    result.peak_bytes = std::max(result.peak_bytes, before_.peak_bytes);
    result.peak_resident = std::max(result.peak_resident, before_.peak_resident);
    train::StepTimes times(/* workers= */ 0);
    for (size_t i = 0; i < step_seconds_.size(); ++i) {
      const auto step = static_cast<int64_t>(i);
      times.add(trainer.images_before(step + 1) - trainer.images_before(step), step_seconds_[i], /* waited= */ 0);
    }
    result.images_per_second = times.images_per_second();
  }

 private:
  std::shared_ptr<TelemetryRecorder> recorder_;
  bool alone_;
  train::TrainResult before_;
  std::vector<double> losses_;
  std::vector<double> step_seconds_;
  train::ResidentPeak resident_{/* reset= */ false};
  Clock::time_point start_ = Clock::now();
};

/// The checkpoint in a file. Throws Error unless it is of this recipe and these versions.
train::Checkpoint checkpoint_of(const std::filesystem::path& file, const train::Recipe& recipe) {
  train::Checkpoint checkpoint = train::load_checkpoint(file);
  const std::vector<std::string> differences = train::differences(train::recipe_of(checkpoint), recipe);
  check(differences.empty(), "compare", "it was made with {}", differences.front());
  for (const auto& [key, now] : {std::pair(train::kVersionsKey, train::versions_json()),
                                 std::pair(train::kPluginsKey, train::plugins_json(nn::loaded_plugins()))}) {
    check(checkpoint.option(key).value_or("[]") == now, "compare", "its {} are others", key);
  }
  return checkpoint;
}

/// Trains one cell, and keeps its checkpoint.
class CellRun {
 public:
  CellRun(size_t cell, const Comparison& comparison, const ComparisonOptions& options, std::string label)
      : cell_(cell),
        comparison_(comparison),
        options_(options),
        label_(std::move(label)),
        file_(cell_checkpoint(options.output, cell)) {
    const train::Recipe recipe = with_source(recipe_of(comparison, comparison.cells[cell]), comparison, options);
    std::string own;
    train::do_together(*options.group, [&] { own = resume(recipe); });
    const std::string obstacle = train::first_text(*options.group, own);
    if (obstacle.empty()) {
      if (!options.quiet) {
        train::say("{}  goes on after step {} of {}\n", label_, trainer_->step(), trainer_->total_steps());
      }
      return;
    }
    if (own != kNoCheckpoint) {
      train::warn("compare", "{}: the run begins anew, not from '{}': {}", label_, file_.string(), obstacle);
    }
    begin();
    train::do_together(*options.group, [&] { trainer_.emplace(recipe, trainer_options()); });
  }

  train::TrainResult run() {
    const std::string weights = comparison_.cells[cell_].option(kWeights);
    if (weights == kRecalibrated) {  // before the work, which would be lost
      train::do_together(*options_.group, [&] { train::check_recalibrates(*trainer_->model()); });
    }
    train::TrainResult result = trainer_->run();
    const bool averaged = result.finished && weights.starts_with("ema");
    if (averaged) {
      save();  // the run goes on from here if a signal comes now
      const bool anew = weights == kRecalibrated;
      trainer_->take_averages(anew ? kRecalibrationBatches : 0);
      result.test = anew ? trainer_->evaluate_test() : result.ema_test;
      result.finished = result.test.complete;
    }
    if (result.finished) {
      fit_ = trainer_->evaluate_fit(std::min(result.test.images, kMostFitImages));
      result.finished = fit_.complete;  // else it is made when the run goes on
    }
    if (!result.finished && !averaged) {
      save();
    }
    progress_->complete(result, *trainer_);
    return result;
  }

  /// Expects a finished run.
  [[nodiscard]] Fit fit() const {
    return {.images = fit_.images, .accuracy = fit_.accuracy, .loss = fit_.loss, .classes = trainer_->classes()};
  }

  /// The record so far; none if the first step has not ended.
  [[nodiscard]] std::optional<Telemetry> record() const {
    std::optional<Telemetry> record = recorder_ ? std::optional(recorder_->result()) : std::nullopt;
    return record && !record->losses.empty() ? record : std::nullopt;
  }

 private:
  static constexpr const char* kNoCheckpoint = "a process does not find it";

  void begin() {
    recorder_ = options_.telemetry ? std::make_shared<TelemetryRecorder>(options_.dynamics) : nullptr;
    progress_ = std::make_shared<Progress>(recorder_, options_.group->size() == 1);
  }

  /// Goes on from the checkpoint. Returns why not, or "".
  std::string resume(const train::Recipe& recipe) {
    if (!train::path_exists("compare", file_)) {
      return kNoCheckpoint;
    }
    try {
      const train::Checkpoint checkpoint = checkpoint_of(file_, recipe);
      begin();
      progress_->resume(checkpoint.option(kProgressKey).value_or(""));
      trainer_.emplace(recipe, trainer_options(), checkpoint);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  train::TrainerOptions trainer_options() {
    return {
        .output = {},
        .workers = options_.workers,
        .log_interval = options_.log_interval,
        .evaluate_each_epoch = options_.telemetry,
        .quiet = options_.quiet,
        .label = label_,
        .time_after =
            [this](double seconds) { return seconds_after(comparison_, cell_, seconds, options_.expected_seconds); },
        // Also before an evaluation, which may take long.
        .before_stage =
            [this](std::string_view /*stage*/) {
              if (train::of_first(*options_.group, seconds_since(saved_) >= interval_)) {
                save();
              }
            },
        .observer = progress_,
        .group = options_.group};
  }

  /// True iff a run can go on from these weights: the loss of others will end it.
  static bool is_finite(const train::Checkpoint& checkpoint) {
    try {
      train::check_finite("compare", "the network", checkpoint.model);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  /// Writes the checkpoint. A disk that is full is no reason to lose the run.
  void save() {
    const Clock::time_point start = Clock::now();
    train::Checkpoint now = trainer_->shared_checkpoint();
    try {
      if (!options_.group->is_first() || !is_finite(now)) {
        return;
      }
      now.options[kProgressKey] = progress_->text();
      if (options_.lock != nullptr) {
        options_.lock->check_in_place();
      }
      train::save_checkpoint(file_, now);
    } catch (const Error& error) {
      if (!std::exchange(warned_, true)) {
        train::warn("compare", "{}: cannot keep a checkpoint: {}", label_, error.what());
      }
    }
    constexpr double kShare = 10;  // a tenth of the time at most
    interval_ = options_.checkpoint_seconds;
    if (interval_ > 0) {
      interval_ = std::max(interval_, kShare * seconds_since(start));
    }
    saved_ = Clock::now();
  }

  size_t cell_;
  const Comparison& comparison_;
  const ComparisonOptions& options_;
  std::string label_;
  std::filesystem::path file_;
  std::shared_ptr<TelemetryRecorder> recorder_;
  std::shared_ptr<Progress> progress_;
  std::optional<train::Trainer> trainer_;
  train::Evaluation fit_;
  Clock::time_point saved_ = Clock::now();
  double interval_ = options_.checkpoint_seconds;
  bool warned_ = false;
};

/// True iff the network is not what made a run fail.
bool is_from_outside(const std::exception& error) {
  return dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const std::system_error*>(&error) != nullptr || train::interrupted();
}

/// Runs the rounds of timing that are due before a cell, or at the end, on the first batch of the data.
void time_norms_before(size_t cell, Comparison& comparison, const ComparisonOptions& options) {
  if (!train::of_first(*options.group, !timing_is_complete(comparison)) || train::interrupted()) {
    return;
  }
  const auto first_batch = [](const train::Recipe& recipe) {  // read anew each time: a kept batch would count as memory
    const auto train_set = train::make_dataset(recipe, data::Split::train);
    return TimingImages{.batch = *train::make_train_loader(recipe, train_set, /* workers= */ 0).next(),
                        .num_classes = train_set->info().num_classes()};
  };
  train::do_in_first(*options.group, [&] {
    time_norms(comparison, cell, {.images = first_batch, .quiet = options.quiet});
    write_report(comparison, options.output, options.lock);
  });
}

/// `expected` seconds of the cells that are left, scaled by the pace of the cells known so far; none if nothing was
/// expected of those.
std::optional<double> scaled_seconds_after(const Comparison& comparison, size_t current, double seconds,
                                           const std::vector<double>& expected) {
  double taken = seconds;
  double foreseen = expected[current];
  double left = 0;
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    if (i != current && comparison.cells[i].state == CellState::finished) {
      taken += comparison.cells[i].seconds;
      foreseen += expected[i];
    } else if (i > current && is_here(comparison.cells[i])) {
      left += expected[i];
    }
  }
  return foreseen > 0 ? std::optional(left * taken / foreseen) : std::nullopt;
}

}  // namespace

std::filesystem::path cell_checkpoint(const std::filesystem::path& folder, size_t cell) {
  return folder / fmt::format("run-{}.safetensors", cell + 1);
}

void remove_cell_checkpoint(const std::filesystem::path& folder, size_t cell) {
  const std::string name = cell_checkpoint(folder, cell).filename().string();
  std::error_code none;
  std::vector<std::filesystem::path> old;
  for (std::filesystem::directory_iterator entry(folder, none), end; !none && entry != end; entry.increment(none)) {
    if (entry->path().filename().string().starts_with(name)) {
      old.push_back(entry->path());
    }
  }
  for (const std::filesystem::path& path : old) {
    std::filesystem::remove(path, none);
  }
}

void run_cell(size_t index, Comparison& comparison, const ComparisonOptions& options, const std::string& label) {
  Cell& cell = comparison.cells[index];
  cell.telemetry.reset();
  if (options.group->size() > 1) {  // where a process could fail alone in a step, all fail here
    train::do_together(*options.group, [&] { rehearse_cell(comparison, cell); });
  }
  CellRun run(index, comparison, options, label);
  train::TrainResult result;
  try {
    result = run.run();
  } catch (const std::exception&) {
    cell.telemetry = run.record();
    throw;
  }
  if (!result.finished) {
    cell.state = CellState::interrupted;
    return;
  }
  cell.state = CellState::finished;
  cell.accuracy = result.test.accuracy;
  cell.loss = result.test.loss;
  cell.right = std::move(result.test.right);
  cell.fit = run.fit();
  cell.images_per_second = result.images_per_second;
  cell.seconds = result.seconds;
  cell.peak_bytes = result.peak_bytes;
  cell.peak_resident = result.peak_resident;
  cell.parameters = result.parameters;
  cell.losses = std::move(result.losses);
  cell.telemetry = run.record();
  cell.seconds -= cell.telemetry ? seconds_of_sharpness(*cell.telemetry) : 0;
}

double seconds_after(const Comparison& comparison, size_t current, double seconds,
                     const std::vector<double>& expected) {
  if (expected.size() == comparison.cells.size()) {
    if (const std::optional<double> after = scaled_seconds_after(comparison, current, seconds, expected)) {
      return *after;
    }
  }
  // The mean is that of `taken` and the finished cells that `counts` accepts; without any, of this cell if it counts.
  const auto mean_of = [&](const auto& counts, std::vector<double> taken = {}) -> std::optional<double> {
    for (const Cell& cell : comparison.cells) {
      if (cell.state == CellState::finished && counts(cell)) {
        taken.push_back(cell.seconds);
      }
    }
    if (taken.empty() && counts(comparison.cells[current])) {
      taken.push_back(seconds);
    }
    return taken.empty() ? std::nullopt : std::optional(sum_of(taken) / static_cast<double>(taken.size()));
  };
  double after = 0;
  for (size_t i = current + 1; i < comparison.cells.size(); ++i) {
    const Cell& cell = comparison.cells[i];
    if (cell.state != CellState::finished && is_here(cell)) {
      const auto of_group = mean_of([&](const Cell& other) { return timing_group(other) == timing_group(cell); });
      const auto of_model = mean_of([&](const Cell& other) { return other.model == cell.model; });
      const auto of_all = mean_of([](const Cell& /*other*/) { return true; }, {seconds});
      after += of_group.value_or(of_model.value_or(*of_all));
    }
  }
  return after;
}

void run_comparison(Comparison& comparison, const ComparisonOptions& options) {
  train::do_in_first(*options.group, [&] {
    train::make_output_folder("compare", options.output);
    write_report(comparison, options.output, options.lock);
  });
  make_sources(comparison, options);
  tune_rates(comparison, options);
  const auto here = std::ranges::count_if(comparison.cells, is_here);
  int64_t number = 0;
  for (size_t i = 0; i < comparison.cells.size() && !train::interrupted(); ++i) {
    Cell& cell = comparison.cells[i];
    if (!is_here(cell)) {
      continue;
    }
    ++number;
    time_norms_before(i, comparison, options);
    if (train::interrupted()) {
      break;
    }
    if (cell.state == CellState::finished) {
      if (options.group->is_first()) {
        remove_cell_checkpoint(options.output, i);  // a kill may have prevented it
      }
      continue;
    }
    const std::string label = fmt::format("[{}/{}] {}", number, here, label_of(comparison, cell));
    cell.reason.clear();
    cell.from_outside = false;
    try {
      run_cell(i, comparison, options, label);
    } catch (const std::exception& e) {
      train::rethrow_unless_agreed(*options.group);
      cell.state = CellState::failed;
      cell.reason = plain_text(e.what());
      cell.from_outside = is_from_outside(e);
      if (!options.quiet) {
        train::say("{}  failed: {}\n", label, cell.reason);
      }
    }
    // The next cell's memory must be neither warm nor cold because of this one.
    allocator(default_device()).empty_cache();
    train::do_in_first(*options.group, [&] {
      write_report(comparison, options.output, options.lock);
      if (cell.state != CellState::interrupted) {
        remove_cell_checkpoint(options.output, i);
      }
    });
  }
  time_norms_before(comparison.cells.size(), comparison, options);
}

}  // namespace norma::lab
