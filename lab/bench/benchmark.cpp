#include "lab/bench/benchmark.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/allocator.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "models/registry.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <malloc.h>

#include <bit>
#include <new>
#include <set>

namespace norma::lab::bench {

namespace {

void check_known(std::string_view what, const std::string& name, const std::vector<std::string>& known) {
  check(is_in(known, name), "bench", "{}", unknown_name(what, name, known));
}

bool is_pattern(const std::string& text) {
  return text == "all" || text.find_first_of("*?[") != std::string::npos;
}

/// True iff a norm of the networks takes the statistics of all processes.
bool shares_statistics(const BenchOptions& options) {
  std::vector<std::string> norms = options.norms;
  for (const nn::NormRule& rule : train::norm_policy_of(options.recipe).rules) {
    norms.push_back(rule.norm);
  }
  return options.recipe.sync_bn || std::ranges::any_of(norms, [](const std::string& norm) {
           return !norm.empty() && nn::parse_norm(norm).name == "sync_batch";
         });
}

/// For several processes.
void check_processes(const BenchOptions& options) {
  constexpr auto op = "bench";
  check(expand_models(options.models).size() == 1 && options.norms.size() == 1 && !options.both_formats, op,
        "procs: expected one model with one norm in one format beside it");
  check(options.modes == std::vector{Mode::train}, op,
        "procs: expected --bench train beside it, since processes that infer tell each other nothing");
  check(!options.retry && !options.detail && !options.alternate, op,
        "procs: expected none of --retry, --detail and --alternate beside it");
  check(options.cuda_graph != train::GraphMode::on, op,
        "procs: expected no --cuda-graph on beside it, since gradients travel between processes");
  check(!shares_statistics(options), op,
        "procs: expected no sync-bn and no norm sync_batch beside it, whose messages a measured step does not have");
  std::set<int64_t> counts;
  for (const int64_t count : options.procs) {
    check(counts.insert(count).second, op, "procs: expected each number once, got {} twice", count);
    check(count <= options.recipe.batch_size, op,
          "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
          options.recipe.batch_size, count);
  }
}

/// One mode of one row while it is measured.
class Session {
 public:
  Session(const BenchOptions& options, BenchRow& row, Mode mode, int64_t batch_size)
      : options_(options), row_(row), mode_(mode), batch_size_(batch_size) {
    if (options_.before_build) {
      options_.before_build(batch_size);
    }
    StepOptions step{.recipe = options.recipe,
                     .num_classes = options.num_classes,
                     .mode = mode,
                     .fold = options.fold,
                     .group = options.group,
                     .cuda_graph = options.detail || options.alternate || options.group ? train::GraphMode::off
                                                                                        : options.cuda_graph};
    step.recipe.model = row.model;
    step.recipe.norm = row.norm;
    step.recipe.channels_last = row.channels_last;
    step.recipe.batch_size = batch_size;
    step_ = std::make_unique<Step>(step);
    row_.parameters = step_->model().parameter_count();
    log("Model {} created, param count: {}", model(), row_.parameters);
    if (step_->folded() > 0) {
      log("{} batch norms are folded into the convolutions before them", step_->folded());
    }
    log("Running {} benchmark on {} with norm {}{} for {} steps w/ input size (3, {}, {}) and batch size {}.",
        mode_ == Mode::train ? "train" : "inference", model(), norm(), in_format(), options.steps,
        options.recipe.image_size, options.recipe.image_size, batch_size);
  }

  void warm() {
    run();
    share_signals();
  }

  void time() {
    parts_.push_back(run());
    share_signals();
    const auto done = std::ssize(parts_);
    const int64_t between_lines = std::max<int64_t>(options_.steps / 5, 1);
    if (done % between_lines == 0 || done == options_.steps) {
      const double middle = spread_of(mapped(parts_, &StepParts::total)).median;
      log("{} [{}/{}]. {:.2f} samples/sec. {:.3f} ms/step.", mode_ == Mode::train ? "Train" : "Infer", done,
          options_.steps, static_cast<double>(batch_size_) / middle, 1e3 * middle);
    }
  }

  /// Finds the network's cost in arithmetic and the parts of its time; not timed.
  void explain(ProductFloor& floor) {
    if (mode_ == Mode::infer) {
      step_->release_graph();  // whose memory an ordinary step cannot use
      const OpProfile profile;
      step_->run_parts();
      count_work(profile.records());
    }
    if (options_.detail) {
      log("Looking at each op of {} with norm {}.", model(), norm());
      measured_.detail = measure_detail(*step_, floor);
    }
  }

  /// Puts the measurements into the row.
  void finish(int64_t retries) {
    const auto median = [&](double StepParts::*part) {
      return mean_of_processes(spread_of(mapped(parts_, part)).median);
    };
    measured_.seconds = mapped(parts_, &StepParts::total);
    measured_.step = spread_of(measured_.seconds);
    measured_.parts = {.forward = median(&StepParts::forward),
                       .backward = median(&StepParts::backward),
                       .exposed = median(&StepParts::exposed),
                       .optimizer = median(&StepParts::optimizer),
                       .messages = median(&StepParts::messages)};
    measured_.batch_size = batch_size_;
    measured_.graph_size = step_->graph_size();
    measured_.retries = retries;
    log("{} benchmark of {} with norm {}{} done. {:.2f} samples/sec, {:.2f} ms/sample",
        mode_ == Mode::train ? "Train" : "Infer", model(), norm(), in_format(), measured_.samples_per_second(),
        1e3 / measured_.samples_per_second());
    (mode_ == Mode::train ? row_.train : row_.infer) = measured_;
  }

  Measured& measured() { return measured_; }

 private:
  StepParts run() {
    const StepParts parts = step_->run();
    if (!std::exchange(has_run_, true)) {
      if (const int64_t size = step_->graph_size(); size > 0) {
        log("cuda-graph: a step is one graph of {} kernels and copies", size);
      } else if (!step_->graph_obstacle().empty()) {
        log("cuda-graph: off: {}", step_->graph_obstacle());
      }
    }
    return parts;
  }

  [[nodiscard]] std::string model() const { return train::model_label(row_.model, options_.recipe); }
  [[nodiscard]] std::string norm() const { return train::norm_label(row_.norm, options_.recipe); }

  /// Text for the log, if rows differ in format.
  [[nodiscard]] std::string_view in_format() const {
    return !options_.both_formats ? "" : row_.channels_last ? " in NHWC" : " in NCHW";
  }

  template <class... Args>
  void log(fmt::format_string<Args...> text, Args&&... args) const {
    if (options_.log) {
      options_.log(fmt::format(text, std::forward<Args>(args)...));
    }
  }

  [[nodiscard]] double mean_of_processes(double value) const {
    return options_.group ? sum_of_processes(value) / options_.group->size() : value;
  }

  /// All processes end after the same step.
  void share_signals() const {
    if (options_.group) {
      train::StopFlag::settle(sum_of_processes(train::StopFlag::is_pending() ? 1 : 0) > 0);
    }
  }

  [[nodiscard]] double sum_of_processes(double value) const {
    const Tensor sum = full({1}, value, {.dtype = DType::float64, .device = kCpu});
    options_.group->all_reduce(sum);
    return sum.to_vector<double>()[0];
  }

  void count_work(const std::vector<OpRecord>& records) {
    double flops = 0;
    double outputs = 0;
    for (const ProductCall& call : product_calls(records)) {
      flops += bench::flops(call);
      if (const auto* conv = std::get_if<kernels::Conv2dCall>(&call)) {
        outputs += static_cast<double>(conv->conv.n * conv->conv.o * conv->conv.oh * conv->conv.ow);
      } else {
        const auto& product = std::get<kernels::MatmulCase>(call);
        outputs += static_cast<double>(product.batch * product.m * product.n);
      }
    }
    measured_.gmacs = 1e-9 * flops / 2 / static_cast<double>(batch_size_);
    measured_.macts = 1e-6 * outputs / static_cast<double>(batch_size_);
  }

  const BenchOptions& options_;
  BenchRow& row_;
  Mode mode_;
  int64_t batch_size_;
  std::unique_ptr<Step> step_;
  bool has_run_ = false;
  Measured measured_;
  std::vector<StepParts> parts_;  // of the timed steps
};

/// Follows the memory of one measurement. It starts from a process that holds as little as it can.
class MemoryWatch {
 public:
  MemoryWatch() {
    allocator(default_device()).empty_cache();
    malloc_trim(0);
    before_ = train::resident_bytes();
    peak_.emplace();
    allocator(default_device()).reset_peak();
    allocated_before_ = allocator(default_device()).statistics().allocated;
  }
  void sample() { peak_->sample(); }
  void report(Measured& measured) const {
    measured.peak_resident = peak_->bytes();
    measured.resident_growth = std::max<int64_t>(measured.peak_resident - before_, 0);
    measured.peak_allocated = allocator(default_device()).statistics().peak_allocated - allocated_before_;
  }

 private:
  int64_t before_ = 0;
  int64_t allocated_before_ = 0;
  std::optional<train::ResidentPeak> peak_;
};

/// Warms and times sessions in turns, in another order each round; false when a signal came.
bool run_in_turns(const BenchOptions& options, std::vector<std::unique_ptr<Session>>& sessions, MemoryWatch& memory) {
  for (int64_t i = 0; i < options.warm_steps + options.steps; ++i) {
    for (const size_t which : turn_order(sessions.size(), static_cast<uint64_t>(i))) {
      if (train::interrupted()) {
        return false;
      }
      const auto& session = sessions[which];
      i < options.warm_steps ? session->warm() : session->time();
      memory.sample();
    }
  }
  return true;
}

class Runner {
 public:
  explicit Runner(const BenchOptions& options) { benchmark_.options = options; }

  Benchmark run() {
    const BenchOptions& options = benchmark_.options;
    if (options.log) {
      options.log(fmt::format("Benchmarking in {} precision. {} layout. {} {}", options.recipe.precision,
                              options.both_formats           ? "NCHW and NHWC"
                              : options.recipe.channels_last ? "NHWC"
                                                             : "NCHW",
                              num_threads(), num_threads() == 1 ? "thread" : "threads"));
    }
    const std::vector<bool> formats =
        options.both_formats ? std::vector<bool>{false, true} : std::vector<bool>{options.recipe.channels_last};
    rows_per_model_ = options.norms.size() * formats.size();
    for (const std::string& model : expand_models(options.models)) {
      for (const std::string& norm : options.norms) {
        for (const bool channels_last : formats) {
          benchmark_.rows.push_back(
              {.model = model, .norm = norm.empty() ? models::own_norm(model) : norm, .channels_last = channels_last});
        }
      }
    }
    benchmark_.complete = options.alternate ? run_alternating() : run_one_by_one();
    if (!benchmark_.complete) {
      std::erase_if(benchmark_.rows, [](const BenchRow& row) { return !row.infer && !row.train && row.error.empty(); });
    }
    return std::move(benchmark_);
  }

 private:
  bool run_one_by_one() {
    for (BenchRow& row : benchmark_.rows) {
      for (const Mode mode : benchmark_.options.modes) {
        if (!guarded({&row}, [&] { return measure_with_retry(row, mode); })) {
          return false;
        }
      }
    }
    return true;
  }

  bool run_alternating() {
    for (size_t first = 0; first < benchmark_.rows.size(); first += rows_per_model_) {
      std::vector<BenchRow*> rows;
      for (size_t i = first; i < first + rows_per_model_; ++i) {
        rows.push_back(&benchmark_.rows[i]);
      }
      for (const Mode mode : benchmark_.options.modes) {
        if (!guarded(rows,
                     [&] { return measure(rows, mode, benchmark_.options.recipe.batch_size, /* retries= */ 0); })) {
          return false;
        }
      }
    }
    return true;
  }

  /// Calls measure() and keeps an Error in the rows. If there are no other rows, throws it.
  template <class Measure>
  bool guarded(const std::vector<BenchRow*>& rows, Measure&& measure) {
    const auto fail_rows = [&](const char* text) {
      for (BenchRow* row : rows) {
        row->error = text;
      }
      if (benchmark_.options.log) {
        benchmark_.options.log(fmt::format("{} with norm {}: {}",
                                           train::model_label(rows.front()->model, benchmark_.options.recipe),
                                           train::norm_label(rows.front()->norm, benchmark_.options.recipe), text));
      }
      return true;
    };
    try {
      return measure();
    } catch (const std::exception& error) {
      const bool out_of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
      if (rows.size() == benchmark_.rows.size() || (!out_of_memory && dynamic_cast<const Error*>(&error) == nullptr)) {
        throw;
      }
      return fail_rows(out_of_memory ? "out of memory" : error.what());
    }
  }

  bool measure_with_retry(BenchRow& row, Mode mode) {
    const BenchOptions& options = benchmark_.options;
    int64_t batch_size = options.recipe.batch_size;
    for (int64_t retries = 0;; ++retries) {
      const int64_t next = options.retry ? smaller_batch(batch_size) : 0;
      try {
        return measure({&row}, mode, batch_size, retries);
      } catch (const std::exception& error) {
        const bool of_system = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
        if (options.group || (!of_system && dynamic_cast<const OutOfMemory*>(&error) == nullptr)) {
          throw;  // others wait for this process
        }
        if (!options.retry) {
          fail_for_memory(row, mode, of_system ? "the system has none left" : error.what());
        }
        if (next == 0) {
          throw;
        }
      }
      if (options.log) {
        options.log(fmt::format("out of memory with batch size {}; trying {}", batch_size, next));
      }
      batch_size = next;
    }
  }

  /// Finds the largest smaller batch that fits by trying, and throws OutOfMemory with it and the reason.
  [[noreturn]] void fail_for_memory(const BenchRow& row, Mode mode, const std::string& reason) {
    BenchOptions options = benchmark_.options;
    options.log = {};
    const auto fits = [&](int64_t batch_size) {
      try {
        allocator(default_device()).empty_cache();
        BenchRow trial = row;
        Session(options, trial, mode, batch_size).warm();
        return true;
      } catch (const OutOfMemory&) {
      } catch (const std::bad_alloc&) {
      }
      return false;
    };
    const int64_t asked = options.recipe.batch_size;
    int64_t found = smaller_batch(asked);
    while (found > 0 && !train::interrupted() && !fits(found)) {
      found = smaller_batch(found);
    }
    throw OutOfMemory(fmt::format("bench: batch-size: {} images do not fit into memory ({}){}", asked, reason,
                                  train::interrupted() ? ""
                                  : found == 0         ? "; a single one did not fit either"
                                                       : fmt::format("; --batch-size {} would fit", found)));
  }

  bool measure(const std::vector<BenchRow*>& rows, Mode mode, int64_t batch_size, int64_t retries) {
    MemoryWatch memory;
    auto sessions = mapped(
        rows, [&](BenchRow* row) { return std::make_unique<Session>(benchmark_.options, *row, mode, batch_size); });
    if (!run_in_turns(benchmark_.options, sessions, memory)) {
      return false;
    }
    for (const auto& session : sessions) {
      if (sessions.size() == 1) {  // with more sessions, nobody knows whose memory it was
        memory.report(session->measured());
      }
      session->explain(floor_);
      session->finish(retries);
    }
    return true;
  }

  Benchmark benchmark_;
  size_t rows_per_model_ = 1;
  ProductFloor floor_;
};

}  // namespace

std::vector<std::string> expand_models(const std::vector<std::string>& patterns) {
  const std::vector<std::string> known = models::model_names();
  std::vector<std::string> models;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) {
      models.push_back(name);
    }
  };
  for (const std::string& pattern : patterns) {
    if (!is_pattern(pattern)) {
      check_known("model", models::network_of(pattern), known);
      add(pattern);
      continue;
    }
    const size_t before = seen.size();
    bool any = false;
    for (const std::string& name : known) {
      if (pattern == "all" || fnmatch(pattern.c_str(), name.c_str(), 0) == 0) {
        any = true;
        add(name);
      }
    }
    check(any || seen.size() > before, "bench", "model: expected a pattern that matches a model, got '{}'", pattern);
  }
  return models;
}

int64_t smaller_batch(int64_t batch_size) {
  if (batch_size <= 1) {
    return 0;
  }
  const auto base = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch_size - 1)));
  const int64_t step = std::max<int64_t>(base / 2, 1);
  return base + (batch_size - base - 1) / step * step;
}

void check_options(const BenchOptions& options) {
  constexpr auto op = "bench";
  expand_models(options.models);
  check(!options.models.empty(), op, "model: expected at least one");
  check(!options.norms.empty(), op, "norm: expected at least one");
  check(!options.modes.empty(), op, "bench: expected train, infer or both");
  for (const std::string& norm : options.norms) {
    if (!norm.empty()) {
      nn::parse_norm(norm);
    }
  }
  check_each_once(op, "norm",
                  mapped(options.norms, [](const std::string& norm) { return norm.empty() ? "''" : norm; }));
  check_range(op, "num-classes", options.num_classes, train::ranges::kClasses);
  check_range(op, "num-warm-iter", options.warm_steps, train::ranges::kStepsOrNone);
  check_range(op, "num-bench-iter", options.steps, train::ranges::kSteps);
  check(!options.fold || is_in(options.modes, Mode::infer), op,
        "fold: expected --bench infer or both, since training needs the norms");
  check(!(options.alternate && options.retry), op,
        "alternate: expected no --retry beside it, since rows that take turns have one batch size");
  check(!(options.detail && options.cuda_graph == train::GraphMode::on), op,
        "detail: expected no --cuda-graph on beside it, since nobody can look into a graph");
  check(!(options.alternate && options.cuda_graph == train::GraphMode::on), op,
        "alternate: expected no --cuda-graph on beside it, since each row would keep the memory of a graph");
  train::check_recipe(options.recipe);
  train::check_training(options.recipe);
  if (!options.procs.empty()) {
    check_processes(options);
  }
}

Benchmark run_benchmark(const BenchOptions& options) {
  check_options(options);
  return Runner(options).run();
}

}  // namespace norma::lab::bench
