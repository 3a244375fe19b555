#pragma once

#include "core/dtype.h"
#include "core/memory_format.h"
#include "lab/judge/norms.h"
#include "session/environment.h"
#include "session/output.h"

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab::judge {

/// The errors of one implementation of 3x3 convolutions in float32, as root mean square over that of the same in
/// float64.
struct ConvolutionErrors {
  std::string what;  ///< of one layer "8x64x56x56"; of a training step "resnet18 batch 8x3x64x64"
  MemoryFormat format = MemoryFormat::channels_last;
  std::string implementation;    ///< a name of convolution_implementations()
  std::array<double, 3> errors;  ///< in the order of layer_quantities() or step_quantities()
};

/// exact, winograd_2x2, winograd_4x4 and fast. exact is the direct sum. A size of tiles computes all layers that it
/// can, whether that is faster or not. fast is what conv2d() chooses.
const std::vector<std::string>& convolution_implementations();
/// output, dx, dweight
const std::array<std::string, 3>& layer_quantities();
/// logits; dparameters, the gradients of all parameters together; and dparameter_worst, that of the parameter with the
/// largest error
const std::array<std::string, 3>& step_quantities();

/// The errors of single convolutions with padding 1 and as many outputs as inputs. x is N(0, 1), negative numbers made
/// 0, as a ReLU leaves it; the weight and dy are N(0, 1). Quick: one memory format. `progress` gets the name of each
/// layer before it is measured. Ends early when train::interrupted(). Throws Error as check_convolutions().
std::vector<ConvolutionErrors> measure_convolutions(bool quick,
                                                    const std::function<void(const std::string&)>& progress);

/// The errors of one training step of whole networks at their start values, on N(0, 1) images with cross entropy, in
/// channels_last: the lower quartile of nine seeds. Where a ReLU's input is so near 0 that float32 has another sign,
/// gradients jump by a thousand times their rounding; that happens in about every second step, with every
/// implementation. Quick: one network and five seeds. Otherwise as measure_convolutions().
std::vector<ConvolutionErrors> measure_steps(bool quick, const std::function<void(const std::string&)>& progress);

/// Throws Error if the default device has no convolutions by Winograd's transforms. CUDA has none.
void check_convolutions();

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
  std::vector<Measurement> measurements = {};
  std::vector<Omission> omissions = {};
  std::vector<Cost> costs = {};
  std::vector<ConvolutionErrors> layers = {};  ///< of measure_convolutions()
  std::vector<ConvolutionErrors> steps = {};   ///< of measure_steps()
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

/// Measures everything on the default device until train::interrupted(). Throws Error as check_options().
Audit run_audit(const AuditOptions& options);

/// Times `stable` and each of `statistics` on one input for each walk.
std::vector<Cost> measure_costs(DType dtype, const std::vector<Statistics>& statistics, bool quick);

/// units.txt: how errors are counted.
std::string_view error_units();

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
