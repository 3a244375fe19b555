#include "base/quoting.h"
#include "cli/command.h"
#include "cli/options.h"
#include "lab/bench/norm_sweep.h"
#include "nn/norm/factory.h"
#include "session/interrupt.h"
#include "session/output.h"
#include "train/recipe_option.h"

namespace norma::cli {

namespace {

struct State {
  lab::bench::SweepOptions sweep;
  RunOptions running;
  int64_t max_megabytes = 0;
  std::string output;
};

int run(const State& state) {
  state.running.apply("bench-norms");
  lab::bench::SweepOptions options = state.sweep;
  options.max_bytes = state.max_megabytes << 20;
  lab::bench::check_options(options);
  const std::filesystem::path folder = state.output.empty() ? new_run_folder("bench-norms") : state.output;
  const train::FolderLock lock("bench-norms", folder, {"results.csv", "results.json", "table.txt", "share.gp"});
  if (!state.running.quiet) {
    options.log = [](const std::string& line) { train::say("{}\n", line); };
  }
  const train::InterruptGuard guard;
  const lab::bench::Sweep sweep = lab::bench::run_sweep(options);
  const bool drawn = lab::bench::write_report(sweep, lock);
  train::say("\nShares of the copy rate:\n{}\n{} measurements in {:.0f} s; all of them: {}\n",
             lab::bench::to_table(sweep), sweep.rows.size(), sweep.seconds, (folder / "results.csv").string());
  for (const std::string& warning : lab::bench::warnings_of(sweep)) {
    train::say("warning: {}\n", warning);
  }
  if (drawn) {
    train::say("plots: {}\n", train::shown(folder / "share-*.png"));
  } else {
    train::say("no plots, since gnuplot is not there or could not draw; later: cd {} && gnuplot share.gp\n",
               shell_word(folder.string()));
  }
  for (const std::string& failure : sweep.failed) {
    train::say("failed: {}\n", failure);
  }
  if (!sweep.complete) {
    train::say("interrupted\n");
    return interrupted_code();
  }
  return sweep.failed.empty() ? kSuccess : kFailure;
}

}  // namespace

Command add_bench_norms(CLI::App& program, const std::string& command_line) {
  CLI::App& app = add_subcommand(program, "bench-norms");
  auto state = std::make_shared<State>();
  lab::bench::SweepOptions& sweep = state->sweep;
  sweep.command = command_line;
  const auto add_sizes = [&](const std::string& name, const Range<int64_t>& range, std::vector<int64_t>& list,
                             const std::string& shown, const std::string& description) {
    add_values(app, name, range, list, description, {.value = "LIST", .otherwise = shown, .heading = kMeasured});
  };
  add_names(app, "--norm,--norms", sweep.norms, "batch,layer2d,group:32,group:1,instance,rms2d", nn::norm_names(),
            "norm specs");
  add_names(app, "--format,--formats", sweep.formats, "both", {"contiguous", "channels_last"},
            "contiguous, channels_last");
  add_names(app, "--dtype,--dtypes", sweep.dtypes, "float32,bfloat16", {"float32", "float64", "bfloat16", "float16"},
            "float32, float64, bfloat16, float16");
  add_names(
      app, "--shapes", sweep.shapes, "all; with norms or sizes of images: images", {"images", "rows", "volume"},
      "images (N, C, H, W); rows (2048, features) with layer norm for layer2d and rms norm for rms2d; volume (64, "
      "16, 224, 224) with layer norm over its last three axes for layer2d");
  add_sizes("--batch-sizes", train::ranges::kSweepBatch, sweep.batch_sizes, "8 to 256", "N of the images");
  add_sizes("--channels", train::ranges::kChannels, sweep.channels, "24 to 2048", "C of the images");
  add_sizes("--img-sizes", train::ranges::kImageSize, sweep.image_sizes, "7 to 112", "H and W of the images");
  add_value(app, "--max-mb", train::ranges::kMebibytes, state->max_megabytes,
            "leave out images with more MiB of float32",
            {.value = "N", .otherwise = "64; with --quick 16", .heading = kMeasured});
  add_switch(app, "--quick", sweep.quick, "fewer and smaller shapes, fewer repetitions", {.heading = kMeasured});
  add_path(app, "--output", state->output, "folder for the results",
           {.value = "FOLDER", .otherwise = "runs/bench-norms-<date>-<time>", .heading = "Running"});
  state->running.add(app);
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
