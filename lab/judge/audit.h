#pragma once

#include "lab/judge/convolutions.h"
#include "lab/judge/norms.h"
#include "lab/judge/truth.h"
#include "session/environment.h"
#include "session/output.h"

#include <functional>
#include <string>
#include <vector>

namespace norma::lab::judge {

/// One norm with one kind of statistics and dtype on one case in one layout.
struct Measurement {
  std::string norm;
  Statistics statistics = Statistics::stable;
  DType dtype = DType::float32;
  std::string case_name;
  Layout layout = Layout::contiguous;
  Sizes sizes;
  Accuracy accuracy;
};

/// A part that was left out, and the reason.
struct Omission {
  std::string what;  ///< "float16 offset_1e6", "batch one_element"
  std::string reason;
};

/// The time of one forward pass.
struct Cost {
  DType dtype = DType::float32;
  std::string walk;  ///< rows, columns, runs
  Sizes sizes;
  Statistics statistics = Statistics::stable;
  double seconds = 0;   ///< median
  double relative = 1;  ///< median of the ratios to `stable`, timed by turns with it
};

struct AuditOptions {
  // An empty list stands for all. With `convolutions`, no norms stands for none.
  std::vector<std::string> norms = {};
  std::vector<std::string> statistics = {};
  std::vector<std::string> dtypes = {};
  std::vector<std::string> cases = {};
  bool convolutions = false;  ///< also 3x3 convolutions and training steps, by each implementation
  bool quick = false;         ///< fewer sizes of published cases, one layout, fewer timings, one training step
  std::string command = {};   ///< the command line, for the report
  std::function<void(const std::string& text)> progress = {};
};

struct Audit {
  std::vector<Measurement> measurements;
  std::vector<Omission> omissions;
  std::vector<Cost> costs;
  std::vector<ConvolutionErrors> layers;  ///< of measure_convolutions()
  std::vector<ConvolutionErrors> steps;   ///< of measure_steps()
  train::Environment environment;
  std::string command;
  std::string date;
  double seconds = 0;
  bool quick = false;
  bool complete = true;  ///< false after an interruption
};

/// Throws Error for unknown or repeated names, for convolutions as check_convolutions(), and for a choice of
/// statistics, dtypes or cases where no norm is measured.
void check_options(const AuditOptions& options);

/// Measures everything on the default device until interrupted() (interrupt.h). Throws Error as check_options().
Audit run_audit(const AuditOptions& options);

/// Times `stable` and each of `statistics` on one input for each walk.
std::vector<Cost> measure_costs(DType dtype, const std::vector<Statistics>& statistics, bool quick);

/// The printed text: the units of the errors, the errors of each norm in steps of the dtype, the published cases, a
/// summary over all norms with the costs, the convolutions, and the parts left out.
std::string to_table(const Audit& audit);
/// A line per measurement, with a header.
std::string to_csv(const Audit& audit);
/// A line per timing, with a header.
std::string costs_to_csv(const Audit& audit);
/// A line per error of `layers` and `steps`, with a header.
std::string convolutions_to_csv(const Audit& audit);
/// All of it. Errors that are no numbers are "inf", "-inf" or "nan".
std::string to_json(const Audit& audit);

/// Writes table.txt, results.csv, costs.csv, convolutions.csv if there are any, and results.json into a folder. Throws
/// Error as HeldFolder does.
void write_report(const Audit& audit, const train::HeldFolder& folder);

}  // namespace norma::lab::judge
