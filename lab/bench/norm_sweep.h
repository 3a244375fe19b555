#pragma once

#include "core/memory_format.h"
#include "core/tensor.h"
#include "session/environment.h"
#include "session/output.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace norma::lab::bench {

/// The options of `norma bench-norms`: norms × shapes × memory formats × dtypes, forward and backward.
struct SweepOptions {
  std::vector<std::string> norms = {"batch", "layer2d", "group:32", "group:1", "instance", "rms2d"};
  std::vector<std::string> formats = {"contiguous", "channels_last"};
  std::vector<std::string> dtypes = {"float32", "bfloat16"};
  /// "images": (N, C, H, W) with every norm. "rows": (2048, features) with layer norm if layer2d is among the norms,
  /// and rms norm if rms2d is. "volume": (64, 16, 224, 224) with layer norm over its last three axes, if layer2d is
  /// among the norms. None: images, and the others too if neither norms nor sizes are chosen. `quick` leaves the volume
  /// out.
  std::vector<std::string> shapes;
  std::vector<int64_t> batch_sizes;  ///< N of the images; none: 8 … 256
  std::vector<int64_t> channels;     ///< C; none: 24 … 2048
  std::vector<int64_t> image_sizes;  ///< H = W; none: 7 … 112
  int64_t max_bytes = 0;             ///< larger images are left out; 0: 64 MiB
  bool quick = false;                ///< fewer and smaller shapes
  /// Gets each line of the log.
  std::function<void(const std::string& line)> log = {};
  std::string command;  ///< for the report
};

/// One norm on one shape in one direction.
struct SweepRow {
  std::string norm;
  std::string shape;  ///< "images", "rows", "volume"
  Sizes sizes;
  DType dtype = DType::float32;
  MemoryFormat format = MemoryFormat::contiguous;
  bool backward = false;
  double x_bytes = 0;    ///< of the input
  double seconds = 0;    ///< median
  double copy_rate = 0;  ///< bytes per second of a copy of as many bytes as the input, timed by turns
  // Quartiles of the shares of the rounds, in each of which copy and norm took turns.
  double share_low = 0;
  double share_high = 0;

  /// The fewest bytes that have to move: x and y forward; dy, x and dx backward.
  [[nodiscard]] double bytes() const { return (backward ? 3 : 2) * x_bytes; }
  [[nodiscard]] double rate() const { return bytes() / seconds; }
  /// The share of the copy rate; 1 is as fast as memory allows.
  [[nodiscard]] double share() const { return rate() / copy_rate; }
};

struct Sweep {
  SweepOptions options;
  train::Environment environment;
  std::vector<SweepRow> rows;
  std::vector<std::string> failed;  ///< "[64, 16, 224, 224]: REASON" for cases that did not fit into memory
  double seconds = 0;
  bool complete = false;  ///< false: a signal came before the end (interrupt.h)
};

/// Throws Error "bench-norms: name: expected …, got …" for the first invalid option.
void check_options(const SweepOptions& options);

/// Measures all cases, without groups that do not divide the channels. A case that does not fit into memory is noted in
/// `failed`, and the rest goes on. Throws Error when nothing fits.
Sweep run_sweep(const SweepOptions& options);

// --- results ---------------------------------------------------------------------------------------------------------

std::string to_csv(const Sweep& sweep);
/// A line for each norm, dtype, format and direction: the median, lowest and highest share over all inputs, and the
/// median and lowest over inputs of 4 MB and more.
std::string to_table(const Sweep& sweep);
/// Warnings for the reader: shares above 100 %, and shares whose rounds lie far apart.
std::vector<std::string> warnings_of(const Sweep& sweep);
/// A script for gnuplot that draws one PNG per dtype from results.csv in the same folder: share against size.
std::string to_gnuplot(const Sweep& sweep);
/// All of it, with the command, the machine and the device.
std::string to_json(const Sweep& sweep);
/// Writes results.csv, results.json, table.txt, share.gp, and share-<dtype>.png if gnuplot is installed. Returns true
/// iff it drew them. Throws Error as HeldFolder does.
bool write_report(const Sweep& sweep, const train::HeldFolder& folder);

}  // namespace norma::lab::bench
