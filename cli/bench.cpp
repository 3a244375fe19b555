#include "cli/command.h"
#include "cli/options.h"
#include "train/bench/benchmark.h"
#include "train/interrupt.h"
#include "train/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace norma::cli {

namespace {

using train::bench::BenchOptions;
using train::bench::Mode;

constexpr const char* kMeasured = "What is measured";
constexpr const char* kResults = "Results";

train::Recipe bench_defaults() {
  return {.image_size = 224, .batch_size = 8, .channels_last = false, .lr = 1e-4};
}

struct State {
  BenchOptions bench;
  RecipeOptions recipe{bench_defaults()};
  RunOptions running;
  std::string mode = "both";
  std::string results_file;
  std::string results_format;
};

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

/// "csv" or "json": what was asked for, else what the file's name says.
std::string format_of(const State& state) {
  if (state.results_format.empty()) {
    return std::filesystem::path(state.results_file).extension() == ".json" ? "json" : "csv";
  }
  check(state.results_format == "csv" || state.results_format == "json", "bench",
        "results-format: expected csv or json, got {}", state.results_format);
  check(!state.results_file.empty(), "bench", "results-format: expected --results-file beside it");
  return state.results_format;
}

int run(const State& state) {
  state.running.apply();
  BenchOptions options = state.bench;
  options.models = split_lists(options.models);
  options.norms = split_lists(options.norms);
  options.modes = modes_of(state.mode);
  options.recipe = state.recipe.applied_to(state.recipe.defaults());
  const std::string format = format_of(state);
  train::bench::check_options(options);
  if (!state.running.quiet) {
    print_if_slow(train::precision_of(options.recipe));
  }
  if (!state.results_file.empty()) {
    const std::filesystem::path file = state.results_file;
    check(!std::filesystem::is_directory(file), "bench", "results-file: expected a file, got the folder {}",
          file.string());
    train::make_output_folder("bench", file.has_parent_path() ? file.parent_path() : ".");
  }
  if (!state.running.quiet) {
    options.log = [](const std::string& line) {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
  }
  const train::InterruptGuard guard;
  const train::bench::Benchmark benchmark = train::bench::run_benchmark(options);
  for (const train::bench::BenchRow& row : benchmark.rows) {
    for (const Mode mode : options.modes) {
      if (const auto& measured = row.measured(mode); measured && measured->detail) {
        fmt::print("\n{} {} with norm {} in {}, batch size {}:\n{}", row.model, to_string(mode),
                   train::norm_label(row.norm, options.recipe), row.channels_last ? "NHWC" : "NCHW",
                   measured->batch_size, train::bench::to_table(*measured->detail));
      }
    }
  }
  if (benchmark.rows.size() > 1) {
    fmt::print("\n{}", train::bench::to_table(benchmark));
  }
  if (!state.results_file.empty()) {
    train::write_text_file("bench", state.results_file,
                           format == "json" ? train::bench::to_json(benchmark) : train::bench::to_csv(benchmark));
  }
  fmt::print("--result\n{}", train::bench::to_json(benchmark));
  if (!benchmark.complete) {
    fmt::print("interrupted\n");
    return kInterrupted;
  }
  const bool failed = std::any_of(benchmark.rows.begin(), benchmark.rows.end(),
                                  [](const train::bench::BenchRow& row) { return !row.error.empty(); });
  return failed ? kFailure : kSuccess;
}

}  // namespace

Command add_bench(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench", "How fast networks train and infer, and where the time goes");
  app->footer(
      "Examples:\n"
      "  norma bench --model resnet50 --bench train -b 8 --channels-last\n"
      "  norma bench --model resnet50 --norm batch,layer2d,group:32 --bench train --channels-last --alternate\n"
      "  norma bench --model 'convnext_*' --bench infer --results-file speed.csv\n"
      "  norma bench --model resnet50 --bench train --channels-last --detail\n"
      "Names of options and columns are those of timm's benchmark.py. A step is timed alone: images and labels are\n"
      "made before. Step times are medians.");
  auto state = std::make_shared<State>();
  BenchOptions& bench = state->bench;
  const auto add_list = [&](const std::string& name, std::vector<std::string>& list, const std::string& type,
                            const std::string& shown, const std::string& description) {
    app->add_option(name, list, description)->type_name(type)->default_str(shown)->group(kMeasured);
  };
  add_list("-m,--model", bench.models, "LIST", "resnet50", "names, patterns ('resnet*') or all");
  add_list("--norm", bench.norms, "LIST", "the model's own", "norm specs, a row for each: batch,layer2d,group:32");
  const auto add = [&](const std::string& name, auto& value, const std::string& type, const std::string& description) {
    return app->add_option(name, value, description)
        ->type_name(type)
        ->capture_default_str()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(kMeasured);
  };
  add("--bench", state->mode, "MODE", "train, infer (or inference), or both");
  add("--num-classes", bench.num_classes, "N", "outputs of the network");
  add("--num-warm-iter", bench.warm_steps, "N", "steps before timing starts");
  add("--num-bench-iter", bench.steps, "N", "steps that are timed");
  const auto flag = [&](const std::string& name, bool& value, const std::string& description) {
    app->add_flag(name, value, description)->group(kMeasured);
  };
  flag("--fold", bench.fold, "inference: fold batch norms into the convolutions before them");
  flag("--detail", bench.detail, "time, bytes and floor of every op");
  flag("--alternate", bench.alternate, "the rows of a model take turns step by step, for comparing them");
  flag("--both-formats", bench.both_formats, "a row in NCHW and one in NHWC (channels_last): what NCHW costs");
  flag("--retry", bench.retry, "where memory does not suffice, try a smaller batch; each row says which");
  state->recipe.add_model_details(*app);
  state->recipe.add_image_shape(*app);
  state->recipe.add_update(*app);
  state->recipe.add_seed(*app);
  state->recipe.add_precision(*app, train::precision_names());
  app->add_option("--results-file", state->results_file, "file for the rows")->type_name("FILE")->group(kResults);
  app->add_option("--results-format", state->results_format, "csv or json")
      ->type_name("NAME")
      ->default_str("by the file's name, else csv")
      ->group(kResults);
  state->running.add_threads(*app);
  app->add_flag("--quiet", state->running.quiet, "show no progress")->group("Running");
  return {app, [state] { return run(*state); }};
}

}  // namespace norma::cli
