#pragma once

#include "lab/bench/detail.h"
#include "lab/bench/spread.h"
#include "lab/bench/step.h"
#include "lab/statistics/decision.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab::bench {

/// The options of `norma bench`, which measures every model × norm, in inference, training or both.
struct BenchOptions {
  std::vector<std::string> models = {"resnet50"};  ///< names, or patterns of the shell: "resnet*"
  std::vector<std::string> norms = {""};           ///< norm specs; "" is the model's own
  std::vector<Mode> modes = {Mode::infer, Mode::train};
  train::Recipe recipe;       ///< the network's other settings, image and batch size, format, precision, optimizer
  bool both_formats = false;  ///< a row in NCHW and one in NHWC, instead of the recipe's format
  int64_t num_classes = 1000;
  int64_t warm_steps = 10;  ///< before timing starts
  int64_t steps = 40;       ///< timed steps
  bool fold = false;        ///< inference: with folded batch norms
  bool detail = false;      ///< find each op's cost, beside its floor
  bool retry = false;       ///< take a smaller batch if memory does not suffice; else that is an error
  /// Whether a step is one launch of a CUDA graph, as in `norma train`. With `detail`, `alternate` or `group` it never
  /// is: nobody can look into a graph, each alternating row would keep the memory of one, and rows of different numbers
  /// of processes are to be comparable.
  train::GraphMode cuda_graph = train::GraphMode::off;
  bool alternate = false;  ///< the norms of a model take turns step by step, so that a slow moment meets all
  /// The numbers of processes in which one row is measured, in training; none: this process alone. They are checked
  /// here; the caller starts the processes, each time with `group`.
  std::vector<int64_t> procs = {};
  /// The processes of one of these measurements. All of them call run_benchmark(), and each has its share of the batch.
  std::shared_ptr<parallel::ProcessGroup> group = {};

  /// Gets each line of the log.
  std::function<void(const std::string& line)> log = {};
  /// Called with the batch size before a network is built. An exception from it counts as thrown by the network.
  std::function<void(int64_t batch_size)> before_build = {};
};

/// One mode of one row.
struct Measured {
  Spread step;                  ///< seconds
  std::vector<double> seconds;  ///< of each step, in order
  StepParts parts;              ///< medians; of several processes, the means of theirs
  int64_t batch_size = 0;
  int64_t graph_size = 0;        ///< kernels and copies of the graph that a step was; 0: ordinary steps
  int64_t retries = 0;           ///< how often the batch was made smaller
  double gmacs = 0;              ///< multiplications with an addition, per image and forward pass, in 1e9
  double macts = 0;              ///< outputs of convolutions and matrix products, per image and forward pass, in 1e6
  int64_t peak_resident = 0;     ///< the most bytes that the process held during the measurement
  int64_t resident_growth = 0;   ///< peak_resident less the bytes before the network was built
  int64_t peak_allocated = 0;    ///< the most bytes that tensors held
  std::optional<Detail> detail;  ///< with BenchOptions::detail

  [[nodiscard]] double samples_per_second() const { return static_cast<double>(batch_size) / step.median; }
};

/// A row's settings and its measurements.
struct BenchRow {
  std::string model;
  std::string norm;  ///< the spec, even of the model's own norm
  bool channels_last = false;
  int64_t parameters = 0;
  std::optional<Measured> infer;
  std::optional<Measured> train;
  std::string error;  ///< why a measurement is missing

  [[nodiscard]] const std::optional<Measured>& measured(Mode mode) const { return mode == Mode::train ? train : infer; }
};

struct Benchmark {
  BenchOptions options;
  std::vector<BenchRow> rows;  ///< as measured: by model, then by norm
  bool complete = false;       ///< false: a signal came before the end (interrupt.h)
};

/// Throws Error "bench: name: expected …, got …" for the first invalid option, and for an unknown model or pattern.
void check_options(const BenchOptions& options);

/// The models that match names and patterns, each once.
std::vector<std::string> expand_models(const std::vector<std::string>& patterns);

/// The next batch size when memory does not suffice: 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1, then 0.
int64_t smaller_batch(int64_t batch_size);

/// Measures all rows. An Error in one row becomes its `error`, and the others go on; if there is only one row, the
/// Error is thrown.
Benchmark run_benchmark(const BenchOptions& options);

/// The share of throughput that a row loses against batch norm with the same model and format.
struct NormTax {
  double share = 0;
  /// If norms took turns: the median over the rounds, each at one moment of the machine, with its interval. `share` is
  /// that median.
  std::optional<MedianInterval> rounds;
};

/// None if batch norm was not measured.
std::optional<NormTax> norm_tax(const Benchmark& benchmark, const BenchRow& row, Mode mode);

// --- results ---------------------------------------------------------------------------------------------------------

/// One row as a JSON object, or all as an array, the fastest first. Columns have the names of timm's benchmark.py if it
/// has them.
std::string to_json(const Benchmark& benchmark);
/// A line for each row under the columns of all rows; a missing value is empty. Measured::detail's lines are in the
/// JSON alone.
std::string to_csv(const Benchmark& benchmark);
/// True iff a file that begins like this was made by one of the two functions above.
bool is_result(std::string_view beginning);
/// A table to read: one line per row, with the throughput lost against `batch` if that was measured.
std::string to_table(const Benchmark& benchmark);

}  // namespace norma::lab::bench
