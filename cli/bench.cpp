#include "cli/command.h"
#include "cli/options.h"
#include "lab/bench/benchmark.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/ranges.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace norma::cli {

namespace {

using lab::bench::BenchOptions;
using lab::bench::Mode;

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

int run(const State& state) {
  state.running.apply("bench");
  BenchOptions options = state.bench;
  options.modes = modes_of(state.mode);
  options.recipe = state.recipe.applied_to(state.recipe.defaults());
  const std::string format = format_of(state);
  lab::bench::check_options(options);
  if (!state.running.quiet) {
    print_precision_note(train::precision_of(options.recipe));
  }
  if (!state.results_file.empty()) {
    const std::filesystem::path file = state.results_file;
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    check(!train::is_folder("bench", file), "bench", "results-file: expected a file, got the folder {}", file.string());
    check(train::is_folder("bench", folder), "bench", "results-file: expected a file in a folder that is there, got {}",
          file.string());
    train::check_replaceable("bench", file, "a result of 'norma bench'", lab::bench::is_result);
    train::make_output_folder("bench", folder);
  }
  if (!state.running.quiet) {
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
  if (!state.results_file.empty()) {
    train::write_text_file("bench", state.results_file,
                           format == "json" ? lab::bench::to_json(benchmark) : lab::bench::to_csv(benchmark));
  }
  train::say("--result\n{}", lab::bench::to_json(benchmark));
  if (!benchmark.complete) {
    train::say("interrupted\n");
    return interrupted_code();
  }
  const bool failed = std::any_of(benchmark.rows.begin(), benchmark.rows.end(),
                                  [](const lab::bench::BenchRow& row) { return !row.error.empty(); });
  return failed ? kFailure : kSuccess;
}

}  // namespace

Command add_bench(CLI::App& program) {
  CLI::App& app = add_subcommand(
      program, "bench", "How fast networks train and infer, and where the time goes",
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
    cli::add_list(app, name, "a name", list, description).type_name(type).default_str(shown).group(kMeasured);
  };
  add_list("-m,--model", bench.models, "LIST", "resnet50", "names, patterns ('resnet*') or all");
  add_list("--norm", bench.norms, "LIST", "the model's own", "norm specs, a row for each: batch,layer2d,group:32");
  add_text(app, "--bench", "a name", state->mode, "train, infer (or inference), or both")
      .type_name("MODE")
      .default_str(state->mode)
      .group(kMeasured);
  const auto add = [&](const std::string& name, const Range<int64_t>& range, int64_t& value,
                       const std::string& description) {
    add_value<int64_t>(
        app, name, range, [&value](int64_t n) { value = n; }, description)
        .type_name("N")
        .default_str(std::to_string(value))
        .group(kMeasured);
  };
  add("--num-classes", train::ranges::kClasses, bench.num_classes, "outputs of the network");
  add("--num-warm-iter", train::ranges::kStepsOrNone, bench.warm_steps, "steps before timing starts");
  add("--num-bench-iter", train::ranges::kSteps, bench.steps, "steps that are timed");
  const auto flag = [&](const std::string& name, bool& value, const std::string& description) {
    add_switch(app, name, value, description).group(kMeasured);
  };
  flag("--fold", bench.fold, "inference: fold batch norms into the convolutions before them");
  flag("--detail", bench.detail, "time, bytes and floor of every op");
  flag("--alternate", bench.alternate, "the rows of a model take turns step by step, for comparing them");
  flag("--both-formats", bench.both_formats, "a row in NCHW and one in NHWC (channels_last): what NCHW costs");
  flag("--retry", bench.retry, "where memory does not suffice, try a smaller batch; each row says which");
  using Part = train::RecipePart;
  state->recipe.add(app, {Part::network, Part::shape, Part::update, Part::seed, Part::precision});
  exclude(app, {"--both-formats", "--channels-last"});
  add_path(app, "--results-file", state->results_file, "file for the rows").type_name("FILE").group(kResults);
  add_text(app, "--results-format", "a name", state->results_format, "csv or json")
      .type_name("NAME")
      .default_str("by the file's name, else csv")
      .group(kResults);
  state->running.add_plugin(app);
  state->running.add(app, {"threads", "device", "quiet"});
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
