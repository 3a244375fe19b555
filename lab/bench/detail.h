#pragma once

#include "core/op_profile.h"
#include "lab/bench/floor.h"
#include "lab/bench/step.h"

#include <cstdint>
#include <string>
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

}  // namespace norma::lab::bench
