#include "lab/compare/comparison.h"

#include "core/allocator.h"
#include "lab/compare/cell_run.h"
#include "lab/compare/source.h"
#include "lab/compare/timing.h"
#include "lab/compare/tune.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace norma::lab {

namespace {

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
    if (cell.state == CellState::finished || !is_here(cell)) {
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
    try {
      run_cell(i, comparison, options, label);
    } catch (const std::exception& e) {
      train::rethrow_unless_agreed(*options.group);
      cell.state = CellState::failed;
      cell.reason = e.what();
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
