#include "cli/compare_checks.h"

#include "core/error.h"
#include "core/parallel.h"
#include "ops/conv/conv.h"
#include "session/environment.h"
#include "session/output.h"

#include <optional>

namespace norma::cli {

void check_same_device(const lab::Comparison& comparison) {
  const std::string& before = comparison.environment.device;
  const std::string now = train::device_text();
  check(before.empty() || before == now, "resume", "device: the comparison was started on {}, and cannot go on on {}",
        before, now);
}

void check_same_processes(const lab::Comparison& comparison, int64_t processes) {
  const int64_t before = comparison.environment.processes;
  check(before == processes, "resume",
        "procs: the comparison was started in {} process{}, and cannot go on in {}: give --procs {}", before,
        before == 1 ? "" : "es", processes, before);
}

void take_threads(const RunOptions& running, const lab::Comparison& comparison) {
  const int64_t threads = comparison.environment.threads;
  if (running.threads == 0 && threads > 0 && threads != num_threads()) {
    train::say("{} {}, as at the beginning\n", threads, threads == 1 ? "thread" : "threads");
    set_num_threads(static_cast<int>(threads));
  }
}

void take_convolutions(const RunOptions& running, const lab::Comparison& comparison) {
  const std::optional<bool> exact = comparison.environment.exact_convolutions;
  if (!exact) {
    train::say("{} convolutions; the results do not say which they began with\n", conv2d_is_exact() ? "exact" : "fast");
    return;
  }
  const char* before = *exact ? "exact" : "fast";
  check(running.conv.empty() || running.conv == before, "resume",
        "conv: the comparison was started with {}, and cannot go on with {}", before, running.conv);
  if (exact != conv2d_is_exact()) {
    train::say("{} convolutions, as at the beginning\n", before);
    set_conv2d_implementation(before, kCpu);
  }
}

void check_each_has_images(const lab::Comparison& comparison, int64_t processes) {
  for (const lab::Cell& cell : comparison.cells) {
    check(cell.batch_size >= processes, "compare",
          "procs: expected at most {}, the images of a batch (option -b, which counts those of all processes), got {}",
          cell.batch_size, processes);
  }
}

void check_dynamics(const lab::ComparisonOptions& options, double budget) {
  if (!options.dynamics.any()) {
    return;
  }
  check(options.telemetry, "compare", "dynamics: expected telemetry, which holds them, got --no-telemetry");
  check(options.group->size() == 1, "compare", "dynamics: expected one process, got {}", options.group->size());
  check(!options.dynamics.sharpness || budget == 0, "compare",
        "dynamics: expected --images or --epochs beside sharpness, which takes longer than any budget of time knows");
}

}  // namespace norma::cli
