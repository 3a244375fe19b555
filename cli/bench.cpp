#include "base/not_copied.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/processes.h"
#include "core/parallel.h"
#include "lab/bench/benchmark.h"
#include "models/registry.h"
#include "nn/norm/factory.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace norma::cli {

namespace {

using lab::bench::BenchOptions;
using lab::bench::Mode;

constexpr const char* kResults = "Results";

train::Recipe bench_defaults() {
  return {.image_size = 224, .batch_size = 8, .channels_last = false, .lr = 1e-4};
}

struct State {
  BenchOptions bench;
  RecipeOptions recipe{bench_defaults()};
  RunOptions running;
  std::string mode;                    ///< "": both, or in several processes train
  int64_t batch_size_per_process = 0;  ///< 0: --batch-size holds
  std::string results_file;
  std::string results_format;
};

/// Where the first of the processes that this program has started writes its row.
constexpr const char* kRowVariable = "NORMA_BENCH_ROW";

std::vector<Mode> modes_of(const std::string& text) {
  if (text == "both") {
    return {Mode::infer, Mode::train};
  }
  if (text == "train") {
    return {Mode::train};
  }
  check(text == "infer" || text == "inference", "bench", "bench: expected train, infer or both, got {}", text);
  return {Mode::infer};
}

/// "csv" or "json": the format asked for, else the one of the file's name.
std::string format_of(const State& state) {
  if (state.results_format.empty()) {
    return std::filesystem::path(state.results_file).extension() == ".json" ? "json" : "csv";
  }
  check(state.results_format == "csv" || state.results_format == "json", "bench",
        "results-format: expected csv or json, got {}", state.results_format);
  check(!state.results_file.empty(), "bench", "results-format: expected --results-file beside it");
  return state.results_format;
}

/// Checks --results-file before anything runs.
void check_results_file(const std::filesystem::path& file) {
  if (file.empty()) {
    return;
  }
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  check(!train::is_folder("bench", file), "bench", "results-file: expected a file, got the folder {}", file.string());
  check(train::is_folder("bench", folder), "bench", "results-file: expected a file in a folder that is there, got {}",
        file.string());
  train::check_replaceable("bench", file, "a result of 'norma bench'", lab::bench::is_result);
  train::make_output_folder("bench", folder);
}

/// Writes --results-file, and prints the rows for programs.
void put_results(const State& state, const std::string& json, const std::string& csv) {
  if (!state.results_file.empty()) {
    train::write_text_file("bench", state.results_file, format_of(state) == "json" ? json : csv);
  }
  train::say("--result\n{}", json);
}

BenchOptions options_of(const State& state) {
  BenchOptions options = state.bench;
  options.modes = modes_of(!state.mode.empty() ? state.mode : options.procs.empty() ? "both" : "train");
  options.recipe = state.recipe.applied_to(state.recipe.defaults());
  options.cuda_graph = train::graph_mode_from_string(state.running.cuda_graph);
  if (state.batch_size_per_process > 0) {
    check(!options.procs.empty(), "bench", "batch-size-per-process: expected --procs beside it");
    options.recipe.batch_size = state.batch_size_per_process * *std::ranges::max_element(options.procs);
  }
  format_of(state);
  lab::bench::check_options(options);
  return options;
}

/// In this process, or by one of those that mpirun has started.
int measure(const State& state, const std::shared_ptr<parallel::ProcessGroup>& group) {
  state.running.apply("bench");
  BenchOptions options = options_of(state);
  options.group = group;
  if (group && state.batch_size_per_process > 0) {
    options.recipe.batch_size = state.batch_size_per_process * group->size();
  }
  const char* const row_file = group ? std::getenv(kRowVariable) : nullptr;
  if (row_file == nullptr) {
    check_results_file(state.results_file);
  }
  if (!state.running.quiet) {
    print_precision_note(train::precision_of(options.recipe));
    options.log = [](const std::string& line) { train::say("{}\n", line); };
  }
  const train::InterruptGuard guard;
  const lab::bench::Benchmark benchmark = lab::bench::run_benchmark(options);
  for (const lab::bench::BenchRow& row : benchmark.rows) {
    for (const Mode mode : options.modes) {
      if (const auto& measured = row.measured(mode); measured && measured->detail) {
        train::say("\n{} {} with norm {} in {}, batch size {}:\n{}", train::model_label(row.model, options.recipe),
                   to_string(mode), train::norm_label(row.norm, options.recipe), row.channels_last ? "NHWC" : "NCHW",
                   measured->batch_size, lab::bench::to_table(*measured->detail));
      }
    }
  }
  if (benchmark.rows.size() > 1) {
    train::say("\n{}", lab::bench::to_table(benchmark));
  }
  if (group && !group->is_first()) {
    // the first one writes
  } else if (row_file == nullptr) {
    put_results(state, lab::bench::to_json(benchmark), lab::bench::to_csv(benchmark));
  } else if (benchmark.complete) {
    std::ofstream(row_file) << lab::bench::to_json(benchmark);
  }
  if (!benchmark.complete) {
    train::say("interrupted\n");
    return interrupted_code();
  }
  const bool failed =
      std::ranges::any_of(benchmark.rows, [](const lab::bench::BenchRow& row) { return !row.error.empty(); });
  return failed ? kFailure : kSuccess;
}

/// Memory that another program writes as a file, and which ends with this one.
class Letter : NotCopied {
 public:
  Letter() : file_(::memfd_create("norma-bench", 0)) {
    check(file_ >= 0, "bench", "procs: the system gives no memory for a result");
  }
  ~Letter() { ::close(file_); }

  [[nodiscard]] std::string name() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_); }
  [[nodiscard]] std::string text() const {
    std::ifstream in(name(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  int file_;
};

/// Starts each number of processes, one after the other.
int run_processes(const State& state) {
  const BenchOptions options = options_of(state);
  check_results_file(state.results_file);
  if (state.running.threads == 0) {  // the same for all, so that only the number of processes differs
    const int64_t most = *std::ranges::max_element(options.procs);
    ::setenv("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, num_threads() / most)).c_str(), /* replace= */ 0);
  }
  std::vector<lab::bench::Json> rows;
  int code = kSuccess;
  for (const int64_t processes : options.procs) {
    if (!state.running.quiet) {
      train::say("{}{} {}:\n", rows.empty() ? "" : "\n", processes, processes == 1 ? "process" : "processes");
    }
    const Letter row;
    ::setenv(kRowVariable, row.name().c_str(), /* replace= */ 1);
    code = start_processes("bench", processes);
    if (code != kSuccess) {
      break;
    }
    lab::bench::add_processes(rows, row.text());
  }
  if (!rows.empty()) {
    train::say("\n{}", lab::bench::scaling_table(rows, state.batch_size_per_process > 0));
    put_results(state, lab::bench::to_json(rows), lab::bench::to_csv(rows));
  }
  return code;
}

int run(State& state) {
  const int64_t started = started_processes();
  if (started == 0) {
    return state.bench.procs.empty() ? measure(state, nullptr) : run_processes(state);
  }
  if (std::getenv(kRowVariable) == nullptr) {  // mpirun is the user's
    check(state.bench.procs.empty() || state.bench.procs == std::vector{started}, "bench",
          "procs: expected the {} processes that were started, got {}", started, fmt::join(state.bench.procs, ","));
    state.bench.procs = {started};
  }
  return run_in_processes("bench", state.running,
                          [&](const std::shared_ptr<parallel::ProcessGroup>& group) { return measure(state, group); });
}

}  // namespace

Command add_bench(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "bench");
  auto state = std::make_shared<State>();
  BenchOptions& bench = state->bench;
  add_names(app, "-m,--model", bench.models, "resnet50", models::model_names(), "names, patterns ('resnet*') or all");
  add_names(app, "--norm", bench.norms, "the model's own", nn::norm_names(),
            "norm specs, a row for each: batch,layer2d,group:32");
  add_text(app, "--bench", "a name", state->mode, "train, infer (or inference), or both",
           {.value = "MODE",
            .otherwise = "both; with --procs train",
            .heading = kMeasured,
            .choices = {"train", "infer", "both"}});
  const auto add = [&](const std::string& name, const Range<int64_t>& range, int64_t& value,
                       const std::string& description) {
    add_value(app, name, range, value, description,
              {.value = "N", .otherwise = std::to_string(value), .heading = kMeasured});
  };
  add("--num-classes", train::ranges::kClasses, bench.num_classes, "outputs of the network");
  add("--num-warm-iter", train::ranges::kStepsOrNone, bench.warm_steps, "steps before timing starts");
  add("--num-bench-iter", train::ranges::kSteps, bench.steps, "steps that are timed");
  const auto flag = [&](const std::string& name, bool& value, const std::string& description) {
    add_switch(app, name, value, description, {.heading = kMeasured});
  };
  flag("--fold", bench.fold, "inference: fold batch norms into the convolutions before them");
  flag("--detail", bench.detail, "time, bytes and floor of every op");
  flag("--alternate", bench.alternate, "the rows of a model take turns step by step, for comparing them");
  flag("--both-formats", bench.both_formats, "a row in NCHW and one in NHWC (channels_last): what NCHW costs");
  flag("--retry", bench.retry, "where memory does not suffice, try a smaller batch; each row says which");
  add_values(app, "--procs", train::ranges::kProcesses, bench.procs,
             "numbers of processes that share each batch, a row for each: 1,2,4 (docs/parallel.md)",
             {.value = "LIST", .otherwise = "this one alone", .heading = kMeasured});
  add_value(app, "--batch-size-per-process", train::ranges::kBatchSize, state->batch_size_per_process,
            "with --procs: images of a batch in each process, in the place of --batch-size, which counts those of all",
            {.value = "N", .heading = kMeasured});
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::network, Part::shape, Part::update, Part::seed, Part::precision});
  exclude(app, "--both-formats", "--channels-last");
  exclude(app, "--batch-size-per-process", "--batch-size");
  add_path(app, "--results-file", state->results_file, "file for the rows", {.value = "FILE", .heading = kResults});
  add_text(
      app, "--results-format", "a name", state->results_format, "csv or json",
      {.value = "NAME", .otherwise = "by the file's name, else csv", .heading = kResults, .choices = {"csv", "json"}});
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
