#include "lab/compare/comparison.h"

#include "core/allocator.h"
#include "lab/compare/timing.h"
#include "lab/compare/tune.h"
#include "lab/telemetry/recorder.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace norma::lab {

namespace {

void run_cell(Cell& cell, const Comparison& comparison, const ComparisonOptions& options, const std::string& label) {
  const auto index = static_cast<size_t>(&cell - comparison.cells.data());
  const auto recorder = options.telemetry ? std::make_shared<TelemetryRecorder>() : nullptr;
  train::Trainer trainer(recipe_of(comparison, cell), {.output = {},
                                                       .workers = options.workers,
                                                       .log_interval = options.log_interval,
                                                       .evaluate_each_epoch = options.telemetry,
                                                       .quiet = options.quiet,
                                                       .label = label,
                                                       .time_after =
                                                           [&comparison, &options, index](double seconds) {
                                                             return seconds_after(comparison, index, seconds,
                                                                                  options.expected_seconds);
                                                           },
                                                       .observer = recorder});
  cell.telemetry.reset();
  train::TrainResult result;
  try {
    result = trainer.run();
  } catch (const std::exception&) {
    if (recorder && !recorder->result().losses.empty()) {
      cell.telemetry = recorder->result();  // the record up to the failure
    }
    throw;
  }
  if (!result.finished) {
    cell.state = CellState::interrupted;
    return;
  }
  cell.state = CellState::finished;
  cell.accuracy = result.test.accuracy;
  cell.loss = result.test.loss;
  cell.images_per_second = result.images_per_second;
  cell.seconds = result.seconds;
  cell.peak_bytes = result.peak_bytes;
  cell.peak_resident = result.peak_resident;
  cell.parameters = result.parameters;
  cell.losses = std::move(result.losses);
  if (recorder) {
    cell.telemetry = recorder->result();
  }
}

/// Runs the rounds of timing that are due before a cell, or at the end, on the first batch of the data.
void time_norms_before(size_t cell, Comparison& comparison, const ComparisonOptions& options) {
  if (timing_is_complete(comparison) || train::interrupted()) {
    return;
  }
  const auto first_batch = [](const train::Recipe& recipe) {  // read anew each time: a kept batch would count as memory
    const auto train_set = train::make_dataset(recipe, data::Split::train);
    return TimingImages{.batch = *train::make_train_loader(recipe, train_set, /* workers= */ 0).next(),
                        .num_classes = train_set->info().num_classes()};
  };
  time_norms(comparison, cell, {.images = first_batch, .quiet = options.quiet});
  write_report(comparison, options.output, options.lock);
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
    } else if (i > current) {
      left += expected[i];
    }
  }
  return foreseen > 0 ? std::optional(left * taken / foreseen) : std::nullopt;
}

}  // namespace

double seconds_after(const Comparison& comparison, size_t current, double seconds,
                     const std::vector<double>& expected) {
  if (expected.size() == comparison.cells.size()) {
    if (const std::optional<double> after = scaled_seconds_after(comparison, current, seconds, expected)) {
      return *after;
    }
  }
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  // The mean over the finished cells that `counts` accepts; without any, the time of this cell if it counts.
  const auto mean_of = [&](auto&& counts) {
    Mean mean;
    for (const Cell& cell : comparison.cells) {
      if (cell.state == CellState::finished && counts(cell)) {
        mean.sum += cell.seconds;
        ++mean.count;
      }
    }
    return mean.count == 0 && counts(comparison.cells[current]) ? Mean{.sum = seconds, .count = 1} : mean;
  };
  Mean all{.sum = seconds, .count = 1};
  for (const Cell& cell : comparison.cells) {
    if (cell.state == CellState::finished) {
      all.sum += cell.seconds;
      ++all.count;
    }
  }
  double after = 0;
  for (size_t i = current + 1; i < comparison.cells.size(); ++i) {
    const Cell& cell = comparison.cells[i];
    if (cell.state == CellState::finished) {
      continue;
    }
    Mean mean = mean_of([&](const Cell& other) { return timing_group(other) == timing_group(cell); });
    if (mean.count == 0) {
      mean = mean_of([&](const Cell& other) { return other.model == cell.model; });
    }
    if (mean.count == 0) {
      mean = all;
    }
    after += mean.sum / mean.count;
  }
  return after;
}

void run_comparison(Comparison& comparison, const ComparisonOptions& options) {
  train::make_output_folder("compare", options.output);
  write_report(comparison, options.output, options.lock);
  tune_rates(comparison, options);
  for (size_t i = 0; i < comparison.cells.size() && !train::interrupted(); ++i) {
    time_norms_before(i, comparison, options);
    if (train::interrupted()) {
      break;
    }
    Cell& cell = comparison.cells[i];
    if (cell.state == CellState::finished) {
      continue;
    }
    const std::string label = fmt::format("[{}/{}] {}", i + 1, comparison.cells.size(), label_of(comparison, cell));
    cell.reason.clear();
    try {
      run_cell(cell, comparison, options, label);
    } catch (const std::exception& e) {
      cell.state = CellState::failed;
      cell.reason = e.what();
      if (!options.quiet) {
        train::say("{}  failed: {}\n", label, cell.reason);
      }
    }
    // The next cell's memory must be neither warm nor cold because of this one.
    allocator(default_device()).empty_cache();
    write_report(comparison, options.output, options.lock);
  }
  time_norms_before(comparison.cells.size(), comparison, options);
}

}  // namespace norma::lab
