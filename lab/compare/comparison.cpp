#include "lab/compare/comparison.h"

#include "core/allocator.h"
#include "core/error.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/compare/timing.h"
#include "nn/norm/factory.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/ranges.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <utility>

namespace norma::lab {

namespace {

template <class T>
void check_list(std::string_view name, const std::vector<T>& values) {
  check(!values.empty(), "compare", "{}: expected at least one, got none", name);
  for (size_t i = 0; i < values.size(); ++i) {
    check(std::find(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i), values[i]) ==
              values.begin() + static_cast<std::ptrdiff_t>(i),
          "compare", "{}: expected each once, got {} twice", name, values[i]);
  }
}

/// Throws Error unless the network of a cell can make a step with its images.
void rehearse(const train::Recipe& recipe, const std::shared_ptr<const data::Dataset>& train_set) {
  train::check_training(recipe);
  train::make_train_loader(recipe, train_set, /* workers= */ 0);
  const auto model = train::make_model(recipe, train_set->info().num_classes());
  const train::Precision precision = train::precision_of(recipe);
  const int64_t images = std::min<int64_t>(recipe.batch_size, 2);  // enough for batch statistics, if the batch is
  const Tensor black = zeros({images, train::kImageChannels, recipe.image_size, recipe.image_size},
                             {.format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous});
  const NoGradGuard no_grad;
  const train::PrecisionScope scope(precision);
  (*model)(train::convert_input(black, precision));
}

/// Throws the Error of the first network that cannot make a step. Its memory is another matter: that is a result.
void rehearse_all(const Comparison& comparison, const std::shared_ptr<const data::Dataset>& train_set) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Cell& cell : comparison.cells) {
    if (cell.state == CellState::finished || train::interrupted() || !seen.emplace(cell.model, cell.norm).second) {
      continue;
    }
    try {
      rehearse(recipe_of(comparison.recipe, cell), train_set);
    } catch (const OutOfMemory&) {
    } catch (const Error& error) {
      fail("compare", "{} with norm {}: {}", cell.model, train::norm_label(cell.norm, comparison.recipe), error.what());
    } catch (const std::bad_alloc&) {
    }
  }
  allocator(default_device()).empty_cache();
}

void run_cell(Cell& cell, const Comparison& comparison, const ComparisonOptions& options, const std::string& label) {
  const auto index = static_cast<size_t>(&cell - comparison.cells.data());
  train::Trainer trainer(recipe_of(comparison.recipe, cell), {.output = {},
                                                              .workers = options.workers,
                                                              .log_interval = options.log_interval,
                                                              .evaluate_each_epoch = false,
                                                              .quiet = options.quiet,
                                                              .label = label,
                                                              .time_after = [&comparison, index](double seconds) {
                                                                return seconds_after(comparison, index, seconds);
                                                              }});
  train::TrainResult result = trainer.run();
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
}

/// Makes the rounds of timing that are due before a cell, or at the end, on the first batch of the data.
void time_norms_before(size_t cell, Comparison& comparison, const ComparisonOptions& options) {
  if (timing_is_complete(comparison) || train::interrupted()) {
    return;
  }
  const auto moments = static_cast<int64_t>(comparison.cells.size() + 1);
  const int64_t due = comparison.timing_rounds * static_cast<int64_t>(cell + 1) / moments;
  {  // read anew each time: kept, the batch would count as memory of the runs
    const auto train_set = train::make_dataset(comparison.recipe, data::Split::train);
    const auto batch = train::make_train_loader(comparison.recipe, train_set, /* workers= */ 0).next();
    time_norms(comparison, due,
               {.batch = &*batch, .num_classes = train_set->info().num_classes(), .quiet = options.quiet});
  }
  write_report(comparison, options.output);
}

}  // namespace

train::Recipe recipe_of(const train::Recipe& common, const Cell& cell) {
  train::Recipe recipe = common;
  recipe.model = cell.model;
  recipe.norm = cell.norm;
  recipe.seed = cell.seed;
  if (cell.model.starts_with("convnext")) {
    recipe.small_stem = false;
    recipe.zero_init_last = false;
  } else {
    recipe.patch_size.reset();
    recipe.layer_scale.reset();
  }
  return recipe;
}

Comparison plan_comparison(const ComparisonOptions& options) {
  check_list("models", options.models);
  check_list("norms", options.norms);
  check_list("seeds", options.seeds);
  check_range("compare", "timing-rounds", options.timing_rounds, train::ranges::kStepsOrNone);
  Comparison comparison{.recipe = options.recipe,
                        .cells = {},
                        .timing_rounds = options.timing_rounds,
                        .timings = {},
                        .environment = train::environment(),
                        .command = options.command,
                        .date = train::local_time()};
  for (const std::string& model : options.models) {
    train::Recipe recipe = options.recipe;
    recipe.model = model;
    train::check_norm_policy(recipe);
    for (const std::string& norm : options.norms) {
      check(!norm.empty(), "compare", "norms: expected a name, got an empty one");
      for (const uint64_t seed : options.seeds) {
        Cell cell;
        cell.model = model;
        cell.norm = norm;
        cell.seed = seed;
        train::check_training(recipe_of(comparison.recipe, cell));
        comparison.cells.push_back(std::move(cell));
      }
    }
  }
  return comparison;
}

double seconds_after(const Comparison& comparison, size_t current, double seconds) {
  const std::string& model_now = comparison.cells[current].model;
  std::map<std::string, std::pair<double, int>> known;  // by model: sum and count
  double sum = 0;
  int count = 0;
  for (const Cell& cell : comparison.cells) {
    if (cell.state == CellState::finished) {
      known[cell.model].first += cell.seconds;
      ++known[cell.model].second;
      sum += cell.seconds;
      ++count;
    }
  }
  known.try_emplace(model_now, seconds, 1);
  const double typical = (sum + seconds) / (count + 1);
  double after = 0;
  for (size_t i = current + 1; i < comparison.cells.size(); ++i) {
    const Cell& cell = comparison.cells[i];
    if (cell.state != CellState::finished) {
      const auto found = known.find(cell.model);
      after += found != known.end() ? found->second.first / found->second.second : typical;
    }
  }
  return after;
}

void rehearse_comparison(const Comparison& comparison) {
  const auto train_set = train::make_dataset(comparison.recipe, data::Split::train);
  train::make_test_loader(comparison.recipe, train::make_dataset(comparison.recipe, data::Split::test),
                          /* workers= */ 0);
  rehearse_all(comparison, train_set);
}

void run_comparison(Comparison& comparison, const ComparisonOptions& options) {
  train::make_output_folder("compare", options.output);
  write_report(comparison, options.output);
  const bool several_seeds = std::any_of(comparison.cells.begin(), comparison.cells.end(),
                                         [&](const Cell& cell) { return cell.seed != comparison.cells.front().seed; });
  for (size_t i = 0; i < comparison.cells.size() && !train::interrupted(); ++i) {
    time_norms_before(i, comparison, options);
    if (train::interrupted()) {
      break;
    }
    Cell& cell = comparison.cells[i];
    if (cell.state == CellState::finished) {
      continue;
    }
    const std::string norm = train::norm_label(cell.norm, comparison.recipe);
    const std::string name = several_seeds ? fmt::format("{} {} seed {}", cell.model, norm, cell.seed)
                                           : fmt::format("{} {}", cell.model, norm);
    const std::string label = fmt::format("[{}/{}] {}", i + 1, comparison.cells.size(), name);
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
    // The next cell must not find its memory warm, or cold, because of this one.
    allocator(default_device()).empty_cache();
    write_report(comparison, options.output);
  }
  time_norms_before(comparison.cells.size(), comparison, options);
}

}  // namespace norma::lab
