#pragma once

#include "core/op_profile.h"
#include "lab/bench/floor.h"
#include "lab/bench/spread.h"
#include "lab/bench/step.h"
#include "lab/statistics/statistics.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab::bench {

/// All calls of one op in one pass by one implementation.
struct OpLine {
  std::string op;  ///< convolutions with their kernel: "conv2d 3x3/2"
  OpPass pass = OpPass::forward;
  std::string implementation;
  int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;  ///< the fewest that have to move
  double flops = 0;  ///< for convolutions and matrix products, else 0
  double floor = 0;  ///< seconds: of the products alone (ProductFloor), or of the bytes at the copy rate

  /// True iff the op is a product, whose floor comes from arithmetic, not from bytes.
  [[nodiscard]] bool is_product() const { return flops > 0; }
};

/// The parts of one step's time: step = product_floor + moving_floor + rest().
struct Detail {
  StepParts parts;            ///< of the profiled step
  std::vector<OpLine> lines;  ///< the longest first
  double copy_rate = 0;       ///< bytes per second, read and written
  double product_floor = 0;   ///< all convolutions and matrix products, alone
  double moving_floor = 0;    ///< the bytes of all other ops at the copy rate

  [[nodiscard]] double step() const { return parts.total(); }
  [[nodiscard]] double rest() const { return step() - product_floor - moving_floor; }
  /// Seconds that no op has reported: tape, views, memory.
  [[nodiscard]] double outside() const;
};

/// Adds up a step's records. `floors`: the seconds of each of product_calls(records) alone, in order.
Detail make_detail(const std::vector<OpRecord>& records, const StepParts& parts, const std::vector<double>& floors,
                   double copy_rate);

/// Profiles a step several times, by turns with its convolutions and products alone and with a copy, and takes the
/// median of each. The floor must be of the step's device.
Detail measure_detail(Step& step, ProductFloor& floor);

/// A line per op, and the sum at the end.
std::string to_table(const Detail& detail);

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

// Rows as JSON objects, whose keys are the columns.
using Json = nlohmann::ordered_json;
/// One row as an object, or all as an array.
std::string to_json(const std::vector<Json>& rows);
/// A line for each row under the columns of all rows.
std::string to_csv(const std::vector<Json>& rows);

/// Adds the row of one number of processes: to_json() of a Benchmark with BenchOptions::group. The row gets one more
/// column, train_efficiency: its images per second and process as a share of those of the first row, in percent. Throws
/// Error if the text is not such a row.
void add_processes(std::vector<Json>& rows, std::string_view json);

/// A table to read, with lines that say what its columns mean. `per_process`: each process has a batch of this size,
/// whatever their number (weak scaling), and not all of them together (strong scaling).
std::string scaling_table(const std::vector<Json>& rows, bool per_process);

}  // namespace norma::lab::bench
