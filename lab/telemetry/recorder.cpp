#include "lab/telemetry/recorder.h"

#include "base/error.h"
#include "base/lists.h"
#include "data/json.h"
#include "lab/bench/spread.h"
#include "lab/telemetry/health.h"
#include "lab/telemetry/timed_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace norma::lab {

namespace {

constexpr int64_t kMostLossPoints = 256;
/// The first steps of a run make kernels and fetch memory.
constexpr size_t kWarmUpSteps = 5;
constexpr double kNotFinite = std::numeric_limits<double>::quiet_NaN();

}  // namespace

int64_t Telemetry::saved_bytes() const {
  return sum_of(saved, &SavedBytes::bytes);
}

void TelemetryRecorder::start(const train::ObservedRun& run) {
  start_ = Clock::now();
  table_.emplace(run.model);
  run_.emplace(run);
  schedule_ = TelemetrySchedule(run.total_steps, dynamics_.any());
  const int64_t steps = run.total_steps - (resumed_ ? 0 : run.first_step);
  steps_per_point_ = (steps + kMostLossPoints - 1) / kMostLossPoints;
}

std::unique_ptr<train::ObservedStep> TelemetryRecorder::begin_step(int64_t step) {
  looks_late_ = false;
  if (schedule_.is_timed(step)) {
    return std::make_unique<TimedStep>(*table_, [this](StepFindings found) {
      times_.push_back(found.time);
      record_.saved = std::move(found.saved);
      record_.ledger = std::move(found.ledger);
      record_.ledger_known = true;
    });
  }
  // A step that is left out, as the first ones in float16 may be, has no sample: the next one takes its place.
  if (schedule_.is_for_health(step) || (is_due_ && dynamics_.any())) {
    looks_late_ = !schedule_.is_for_health(step);
    is_due_ = true;
    std::optional<Sharpness> sharpness;
    if (dynamics_.sharpness && (schedule_.is_for_sharpness(step) || sharpness_is_due_)) {
      sharpness_is_due_ = true;
      sharpness = measure_sharpness();  // before the log of layers begins
    }
    const auto keep = [this, sharpness](HealthSample sample) {
      is_due_ = false;
      sharpness_is_due_ = false;
      if (sample.dynamics) {
        sample.dynamics->sharpness = sharpness;
      }
      record_.health.push_back(std::move(sample));
    };
    return std::make_unique<HealthStep>(
        *table_, step, keep,
        dynamics_.any() ? std::make_unique<DynamicsReader>(*table_, dynamics_, run_->optimizer) : nullptr);
  }
  return nullptr;
}

Sharpness TelemetryRecorder::measure_sharpness() {
  if (!run_->loss_of_first_batch) {
    return {.problem = "sharpness: expected the loss of a batch, got none from the run"};
  }
  const Sharpness found = sharpness_of(run_->model, run_->loss_of_first_batch, power_iteration_);
  seconds_of_sharpness_ += found.seconds;
  if (run_->print) {
    const int64_t updates = run_->optimizer != nullptr ? run_->optimizer->steps() : last_step_;
    run_->print(found.problem.empty()
                    ? fmt::format("sharpness after {} updates: {:.4g}; the last of {} Hessian-vector products changed "
                                  "it by {:.2g} %; {:.1f} s",
                                  updates, found.value, found.products, 100 * found.change, found.seconds)
                    : fmt::format("sharpness after {} updates: not known: {}", updates, found.problem));
  }
  return found;
}

void TelemetryRecorder::end_step(int64_t step, double loss, double seconds) {
  step_seconds_.push_back(seconds);
  const bool warms_up = resumed_ && step <= run_->first_step + static_cast<int64_t>(kWarmUpSteps);
  looked_into_.push_back(warms_up || schedule_.is_timed(step) || schedule_.is_for_health(step) || looks_late_);
  loss_sum_ += loss;
  ++loss_count_;
  last_step_ = step;
  if (loss_count_ >= steps_per_point_ || step == run_->total_steps) {
    record_.losses.push_back(
        {.step = step, .seconds = seconds_since_start(), .loss = loss_sum_ / static_cast<double>(loss_count_)});
    loss_sum_ = 0;
    loss_count_ = 0;
  }
}

void TelemetryRecorder::evaluated(int64_t step, const train::Evaluation& test) {
  if (!record_.tests.empty() && record_.tests.back().step == step) {
    return;  // a resumed run may evaluate once more
  }
  record_.tests.push_back(
      {.step = step, .seconds = seconds_since_start(), .loss = test.loss, .accuracy = test.accuracy});
}

Telemetry TelemetryRecorder::result() const {
  Telemetry record = record_;
  if (loss_count_ > 0) {  // if the run ended early
    record.losses.push_back(
        {.step = last_step_, .seconds = seconds_since_start(), .loss = loss_sum_ / static_cast<double>(loss_count_)});
  }
  record.throughput = throughput();
  record.step_time = step_time();
  return record;
}

double TelemetryRecorder::seconds_since_start() const {
  return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count() - seconds_of_sharpness_;
}

nlohmann::ordered_json TelemetryRecorder::state() const {
  return {{"record", telemetry_to_json(record_)},
          {"times", mapped(times_, step_time_to_json)},
          {"seconds", seconds_since_start()},
          {"step_seconds", step_seconds_},
          {"looked_into", looked_into_},
          {"loss_sum", loss_sum_},
          {"loss_count", loss_count_},
          {"last_step", last_step_},
          {"is_due", is_due_},
          {"sharpness_is_due", sharpness_is_due_}};
}

void TelemetryRecorder::resume(const nlohmann::json& state, const std::string& where) {
  const auto read = [&]<class T>(const char* name, T& value) { value = data::json_field<T>(where, state, name); };
  read("seconds", seconds_before_);
  read("step_seconds", step_seconds_);
  read("looked_into", looked_into_);
  check(looked_into_.size() == step_seconds_.size(), where, "looked_into: expected {} values, got {}",
        step_seconds_.size(), looked_into_.size());
  loss_sum_ = data::json_field<std::optional<double>>(where, state, "loss_sum").value_or(kNotFinite);
  read("loss_count", loss_count_);
  read("last_step", last_step_);
  if (state.contains("is_due")) {  // earlier versions did not write it
    read("is_due", is_due_);
    read("sharpness_is_due", sharpness_is_due_);
  }
  check(state.contains("record") && state.contains("times") && state["times"].is_array(), where,
        "record, times: missing");
  record_ = telemetry_from_json(state["record"], where);
  times_ = mapped(state["times"], [&](const auto& time) { return step_time_from_json(time, where + ": times"); });
  resumed_ = true;
}

Throughput TelemetryRecorder::throughput() const {
  const auto steps_that = [&](const auto& count) {
    std::vector<double> chosen;
    for (size_t i = 0; i < step_seconds_.size(); ++i) {
      if (count(i)) {
        chosen.push_back(step_seconds_[i]);
      }
    }
    return chosen;
  };
  std::vector<double> seconds = steps_that([&](size_t i) { return i >= kWarmUpSteps && !looked_into_[i]; });
  if (seconds.empty()) {
    seconds = steps_that([](size_t) { return true; });
  }
  const bench::Spread spread = bench::spread_of(seconds);
  if (spread.count == 0 || !(spread.min > 0)) {
    return {};
  }
  const auto images = static_cast<double>(run_ ? run_->batch_size : 0);
  return {
      .steps = spread.count, .min = images / spread.max, .median = images / spread.median, .max = images / spread.min};
}

StepTime TelemetryRecorder::step_time() const {
  if (times_.empty()) {
    return {};
  }
  StepTime middle = times_[bench::median_index(mapped(times_, &StepTime::total))];
  middle.samples = static_cast<int64_t>(times_.size());
  return middle;
}

TelemetrySchedule::TelemetrySchedule(int64_t total_steps, bool dynamics) {
  const int64_t looks = 1 + total_steps / kInterval;
  const int64_t timed = std::min(kMostTimed, looks);
  for (int64_t i = 0; i < timed; ++i) {  // the middles of equal parts of the run
    timed_.insert(std::max<int64_t>(1, total_steps * (2 * i + 1) / (2 * timed)));
  }
  const int64_t health = std::min(dynamics ? kMostHealthWithDynamics : kMostHealth, looks);
  for (int64_t i = 1; i <= health; ++i) {  // their ends
    const int64_t step = total_steps * i / health;
    if (step > 0 && (dynamics || !timed_.contains(step))) {
      health_.insert(step);
    }
  }
  if (dynamics && total_steps > 0) {
    health_.insert(1);
    std::erase_if(timed_, [this](int64_t step) { return health_.contains(step); });
    const std::vector<int64_t> steps(health_.begin(), health_.end());
    const int64_t last = static_cast<int64_t>(steps.size()) - 1;
    for (int64_t i = 0; i < kMostSharpness; ++i) {
      sharpness_.insert(steps[static_cast<size_t>(last * i / (kMostSharpness - 1))]);
    }
  }
}

}  // namespace norma::lab
